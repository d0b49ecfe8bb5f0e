"""The board in headless Chromium, while runs change below it.

The tests are skipped where neither RLCLI_CHROMIUM nor PATH has a Chromium.
"""

import json
import threading

import pytest
from browser import Browser, find_browser
from folders import OTHER_RATE, RESOLVED, evaluation, write_run

import rlcli

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("vl_convert")

pytestmark = pytest.mark.slow
ATTACK = "<img src=x onerror=window.attacked=1>"
NAMES = (ATTACK, "x" * 200, "\u202egnp.exe", "\x1b]0;\x07\x01", "' onload='a", "%2e%2e")
ROWS = "document.querySelectorAll('.run-row').length"
CURVE = "document.querySelector('#learning .plot')"
LAST = f"Math.max(...{CURVE}.figure.vega.data('points').map((row) => row.x))"


def rows(first=1, last=30, factor=1.0):
    return [
        row
        for step in range(first, last)
        for seed in range(2)
        for row in (
            {"T": 100 * step, "seed": seed, "avg_G": factor * step, "loss": 1 / step},
            {"T": 100 * step, "seed": seed, "evaluation": evaluation(step + seed)},
        )
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("board") / "runs"
    write_run(folder / "a", rows=rows())
    film = write_run(folder / "b", rows=rows(), resolved=OTHER_RATE, status="failed")
    (film / "x.gif").write_bytes(b"GIF89a<script>window.attacked=1</script>")
    for name in NAMES:
        fields = {"tags": [ATTACK], "reason": ATTACK, "status": "stopped"}
        write_run(folder / "hostile" / name, rows=rows(), recipe="hostile", **fields)
    (folder / "hostile" / "x" / "run.json").parent.mkdir()
    (folder / "hostile" / "x" / "run.json").write_text("{")
    return folder


@pytest.fixture(scope="module")
def link(runs):
    links, is_ready = [], threading.Event()

    def show_link(link):
        links.append(link)
        is_ready.set()

    threading.Thread(
        target=lambda: rlcli.board(runs, show_link=show_link), daemon=True
    ).start()
    assert is_ready.wait(60)
    return links[0]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is on PATH or in RLCLI_CHROMIUM")
    with Browser(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


def show(browser, address, width=1280):
    browser.clear()
    browser.open(address, width)
    browser.wait_until("document.documentElement.hasAttribute('data-loaded')")
    browser.wait_until(f"{CURVE}?.figure.vega")


def near(browser, section):
    place = f"document.getElementById('{section}')"
    browser.wait_until(place)
    browser.evaluate(f"{place}.scrollIntoView({{behavior: 'instant'}})")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 700, 390])
def test_the_page_draws_and_the_console_is_silent(browser, link, theme, width):
    browser.set_media(prefers_color_scheme=theme)
    show(browser, link, width)
    for section in ("diagnostics", "recipes", "films", "provenance"):
        near(browser, section)
        browser.wait_until(f"!document.querySelector('#{section} .waits')")
    browser.wait_until("document.documentElement.hasAttribute('data-drawn')")
    assert browser.evaluate(ROWS) == 9
    marks = "document.querySelectorAll('.plot .role-mark path').length"
    assert browser.evaluate(marks) > 8
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.problems == []
    assert all(each.startswith(link) for each in browser.requests)


def test_hostile_names_are_text(browser, link):
    show(browser, link)
    for section in ("diagnostics", "recipes", "films", "provenance"):
        near(browser, section)
        browser.wait_until(f"!document.querySelector('#{section} .waits')")
    browser.evaluate("document.querySelector('#films details').open = true")
    browser.wait_until("document.querySelector('#films img, #films .fine')")
    assert browser.evaluate("window.attacked") is None
    assert browser.evaluate("document.querySelectorAll('img[onerror]').length") == 0
    text = browser.evaluate("document.querySelector('.runs').textContent")
    assert ATTACK in text and "\u202e" not in text and "\x1b" not in text
    assert browser.evaluate("document.querySelectorAll('.broken').length") == 1


def test_a_filter_and_a_heading_choose_and_sort_the_rows(browser, link):
    show(browser, link)
    browser.press("/")
    assert browser.evaluate("document.activeElement.className") == "filter"
    browser.evaluate(
        "(() => { const f = document.querySelector('.filter'); f.value ="
        " 'status=failed'; f.dispatchEvent(new Event('input')); })()"
    )
    browser.wait_until(f"{ROWS} === 1")
    assert browser.evaluate("location.hash") == "#filter=status%3Dfailed"
    browser.wait_until("document.querySelectorAll('#results .card').length === 1")
    show(browser, f"{link}#sort=status")
    assert browser.evaluate(ROWS) == 9
    states = "[...document.querySelectorAll('.state')].map((each) => each.textContent)"
    assert browser.evaluate(states) == sorted(browser.evaluate(states))
    browser.evaluate("document.querySelector('th[aria-sort] button').click()")
    found = browser.evaluate(states)
    assert found == sorted(found, reverse=True)
    assert browser.problems == []


def test_a_wrong_filter_is_explained(browser, link):
    show(browser, link)
    browser.evaluate(
        "(() => { const f = document.querySelector('.filter'); f.value ="
        " 'no.such=1'; f.dispatchEvent(new Event('input')); })()"
    )
    message = "document.querySelector('.message').textContent"
    browser.wait_until(f"{message}.includes('no run has')")


def test_keys_select_a_run_and_the_link_keeps_it(browser, link):
    show(browser, f"{link}#sort=run")
    for key in ("j", "x"):
        browser.press(key)
    browser.wait_until("location.hash.includes('runs=')")
    browser.wait_until("document.querySelectorAll('#results .card').length === 1")
    address = browser.evaluate("location.href")
    show(browser, address)
    assert (
        browser.evaluate("document.querySelectorAll('.run-row :checked').length") == 1
    )
    assert browser.evaluate("document.querySelectorAll('#results .card').length") == 1
    browser.press("c")
    browser.wait_until("document.querySelectorAll('#results .card').length > 1")


def test_curves_are_drawn_by_updates_and_zoomed_with_the_server(browser, link):
    show(browser, f"{link}#filter=status%3Dfailed&range=500,1500")
    assert browser.evaluate(LAST) == 1500
    browser.evaluate(f"{CURVE}.focus({{preventScroll: true}})")
    browser.press("0")
    browser.wait_until(f"{LAST} === 2900")
    assert "range" not in browser.evaluate("location.hash")
    browser.press("+")
    browser.wait_until(f"{LAST} < 2900")
    near_half = browser.evaluate(LAST)
    browser.press("+")
    browser.wait_until(f"{LAST} < {near_half}")
    browser.wait_until(f"{CURVE}.figure.places.at(-1) < {near_half}")  # those sent
    browser.press("-")  # by half, although the board has sent this range only
    browser.wait_until(f"{LAST} === {near_half}")
    browser.press("-")
    browser.wait_until(f"{LAST} === 2900")


def test_a_metric_has_its_meaning_on_hover(browser, link):
    show(browser, link)
    near(browser, "learning")
    box = browser.evaluate(
        "(() => { const r = document.querySelector('#learning .chart-title')"
        ".getBoundingClientRect(); return [r.left, r.top]; })()"
    )
    meaning = "document.querySelector('#learning .meaning')"
    assert browser.evaluate(f"getComputedStyle({meaning}).display") == "none"
    browser.move_pointer(box[0] + 8, box[1] + 8)
    browser.wait_until(f"getComputedStyle({meaning}).display === 'block'")
    assert "mean return" in browser.evaluate(f"{meaning}.textContent")


def test_new_rows_and_new_runs_appear(browser, link, runs):
    browser.clear()
    browser.open(f"{link}#filter=live")
    browser.wait_until("document.documentElement.hasAttribute('data-loaded')")
    assert browser.evaluate(ROWS) == 0
    run = write_run(runs / "live", rows=rows(last=5), resolved=RESOLVED)
    browser.wait_until(f"{ROWS} === 1")
    browser.wait_until(f"{CURVE}?.figure.vega && {LAST} === 400")
    with (run / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows(5, 9)))
    browser.wait_until(f"{LAST} === 800")
    assert browser.problems == []
