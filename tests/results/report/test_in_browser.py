"""The page in a browser: a policy is evaluated, and headless Chromium reads the page.

The tests with a browser find it by RLCLI_CHROMIUM or on PATH, and are skipped else.
"""

import itertools
import json
import re

import numpy as np
import pytest
from browser import Browser, find_browser
from folders import evaluation, write_run
from markup import Markup
from policy_files import write_policy

import rlcli

pytest.importorskip("vl_convert")

from rlcli.results.report import charts
from rlcli.results.report.charts import HeatCell, Line
from rlcli.results.report.episode_views import EpisodeView, GroupEpisodes
from rlcli.results.report.learning import Learning
from rlcli.results.report.page import make_content, write_page
from rlcli.runs.result import Table

pytestmark = pytest.mark.slow
RECIPE = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": {"name": "mlp", "layers": [4]},
    "updater": "ppo",
    "train": {"steps": 1000, "seeds": 2},
}
RESOLVED = "environment: {name: CartPole-v1}\nupdater: {name: ppo}\ntrain: {seeds: 2}\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of two groups, of which one has a policy."""
    folder = tmp_path_factory.mktemp("page")
    rows = [
        row
        for step, seed in itertools.product(range(1, 30), range(2))
        for row in (
            {"T": step, "seed": seed, "avg_G": step, "loss": 1 / step, "dt": 1.0},
            {"T": step, "seed": seed, "evaluation": evaluation(float(step + seed))},
        )
    ]
    run = write_run(folder / "runs" / "a", rows=rows, resolved=RESOLVED, recipe="ppo")
    write_policy(run, RECIPE, seeds=(0, 1))
    write_run(folder / "runs" / "b", rows=rows, resolved=RESOLVED, recipe="<i>other")
    return rlcli.report(folder / "runs", output=folder / "page.html", episodes=4)


GALLERY = {
    "lines": charts.draw_lines(
        "lines",
        [
            Line("a & <b>", 0, [0, 102_456, 200_000], [1, 2, 4], [0, 1, 3], [2, 3, 5]),
            Line("c", 1, [0, 200_000], [3, float("nan")]),
        ],
        x="steps",
        y="G",
    ),
    "long": charts.draw_lines(
        "long", [Line("a", 0, [*range(1000)], [*range(1000)])], x="steps", y="G"
    ),
    "shares": charts.draw_shares(
        "shares",
        ["it's", "b"],
        [0, 1],
        np.array([[0.1, 0.9], [0.25, 0.75]]),
        x_title="step",
        description="d",
    ),
    "histogram": charts.draw_histogram(
        *("histogram", 2, [3, 0, 1], [0, 1, 2, 3], {"seed 0": 1.5}),
        x="return",
        description="d",
    ),
    "intervals": charts.draw_intervals(
        "intervals",
        [
            {"label": "a", "color": 0, "value": 2.0, "ci95": [1, 3]}
            | {"results": [float(value) for value in range(12)]},
            {"label": "b", "color": 1, "value": 5.0, "ci95": None, "results": [5.0]},
        ],
        x="G",
        center="mean",
        description="d",
    ),
    "no points": charts.draw_intervals(
        "no points",
        [{"label": "a", "color": 0, "value": 0.7, "ci95": [0, 1], "results": []}],
        x="P",
        center="P",
        description="d",
    ),
    "heat": charts.draw_heat_map(
        "heat",
        [
            HeatCell("it's", "A", 0.0, "2", "finished"),
            HeatCell("it's", "B", None, "missing", "missing"),
        ],
        x="environment",
        y="recipe",
        description="d",
        note="",
    ),
}
TABLES = {
    "lines": [
        ["series", "steps", "G", "95 % interval"],
        ["a & <b>", "0", "1", "0 to 2"],
        ["a & <b>", "102,456", "2", "1 to 3"],
        ["a & <b>", "200,000", "4", "3 to 5"],
        ["c", "0", "3", "n/a: 1 seed"],
        ["c", "200,000", "–", "n/a: 1 seed"],
    ],
    "shares": [["step", "it's", "b"], ["0", "10 %", "90 %"], ["1", "25 %", "75 %"]],
    "histogram": [["return", "episodes"], ["0 to 1", "3"], ["2 to 3", "1"]],
    "intervals": [
        ["group", "mean", "95 % interval", "seed"],
        ["a", "2", "1 to 3", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … (12)"],
        ["b", "5", "n/a: 1 seed", "5"],
    ],
    "no points": [["group", "P", "95 % interval"], ["a", "0.7", "0 to 1"]],
    "heat": [
        ["recipe", "environment", "return", "status"],
        ["it's", "A", "2", "finished"],
        ["it's", "B", "missing", "missing"],
    ],
}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """A page with a chart of each kind, and with two episodes."""
    file = tmp_path_factory.mktemp("gallery") / "page.html"
    learning = [Learning("E", "G", [], results=[*GALLERY.values()])]
    lines = [Line("v", 0, [0, 8], [0, 8])], [Line("v", 0, [0, 3], [50, 1])]
    episodes = [
        EpisodeView(
            title, "", None, [charts.draw_lines("values", own, x="step", y="v")], []
        )
        for title, own in zip(("best", "worst"), lines, strict=True)
    ]
    table = Table("Returns", ["seed"], [["0"]])
    group = GroupEpisodes("a", 0, "", GALLERY["histogram"], table, episodes)
    write_page(file, make_content([], "mean", [], learning, [group]))
    return file


@pytest.fixture(scope="module")
def browser(page, tmp_path_factory):
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is on PATH or in RLCLI_CHROMIUM")
    with Browser(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(autouse=True)
def _open(request):
    if "browser" in request.fixturenames:
        browser, page = (request.getfixturevalue(n) for n in ("browser", "page"))
        browser.set_media(prefers_color_scheme="light")
        browser.open(page)
        browser.wait_until("document.documentElement.hasAttribute('data-drawn')")


def test_a_policy_is_evaluated_and_inspected(page):
    text = page.read_text()
    found = json.loads(Markup(text).scripts[0])["page"]
    (group,) = found["episodes"]
    assert len(group["episodes"]) in (1, 2)
    assert all(each["film"]["sheet"]["is_drawing"] for each in group["episodes"])
    assert group["returns"]["title"] == "Distribution of returns"
    values, shares = group["episodes"][0]["charts"]
    assert (values["title"], shares["title"]) == (
        *("Value estimates", "Action probabilities"),
    )
    assert "no episodes of `" in found["notes"][0]  # of the run without a policy
    (block,) = shares["blocks"]
    for first, second in zip(block["p0"], block["p1"], strict=True):
        assert first + second == pytest.approx(1, abs=1e-4)
    assert len(text) < 2_000_000


def test_the_console_is_silent_and_nothing_is_requested(browser, page):
    assert browser.problems == []
    assert {*browser.requests} == {page.as_uri()}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_chart_is_drawn_within_the_window(browser, page, theme, width):
    browser.set_media(prefers_color_scheme=theme)
    browser.open(page, width)
    browser.wait_until("document.documentElement.hasAttribute('data-drawn')")
    found = browser.evaluate(
        "[...document.querySelectorAll('.plot')].map((plot) => [plot.clientWidth,"
        " plot.querySelector('svg').getBoundingClientRect().width,"
        " plot.querySelectorAll('.role-mark path, .role-mark line').length])"
    )
    assert len(found) > 8
    for place, drawn, marks in found:
        assert 0 < drawn <= place + 1
        assert marks > 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_films_on_white_paper_are_dark_in_the_dark_theme(browser):
    style = "getComputedStyle(document.querySelector('.film canvas')).filter"
    assert browser.evaluate(style) == "none"
    browser.set_media(prefers_color_scheme="dark")
    assert browser.evaluate(style).startswith("invert(")


@pytest.mark.parametrize("width", [1280, 390])
def test_no_two_entries_of_a_legend_collide(browser, page, width):
    browser.open(page, width)
    boxes = browser.evaluate(
        "[...document.querySelectorAll('.groups')].map((list) =>"
        " [...list.querySelectorAll('li')].map((entry) => {"
        " const box = entry.getBoundingClientRect();"
        " return [box.left, box.top, box.right, box.bottom]; }))"
    )
    assert sum(map(len, boxes)) > 8
    for legend in boxes:
        assert all(left >= 0 and right <= width for left, _, right, _ in legend)
        for one, other in itertools.combinations(legend, 2):
            assert min(one[2], other[2]) <= max(one[0], other[0]) or min(
                one[3], other[3]
            ) <= max(one[1], other[1])


def test_a_tooltip_shows_the_point_near_the_pointer(browser):
    browser.evaluate(
        "document.querySelector('#learning').scrollIntoView({behavior: 'instant'})"
    )
    left, top, width, height = browser.evaluate(
        "(() => { const r = document.querySelector('#learning svg')"
        ".getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; })()"
    )
    for part in (0.5, 0.51):
        browser.move_pointer(left + part * width, top + height / 2)
    browser.wait_until("document.querySelector('.vg-tooltip.visible')")
    text = browser.evaluate("document.querySelector('.vg-tooltip').innerText")
    assert re.search(r"series\s+(ppo|<i>other)", text)
    assert re.search(r"95 % interval\s+\d+ to \d+", text)
    assert browser.evaluate("document.querySelectorAll('.vg-tooltip i').length") == 0


def test_screen_readers_can_read_a_page(browser):
    found = Markup(browser.evaluate("document.documentElement.outerHTML"))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len({*ids})
    anchors = {a["href"][1:] for a in found.all("a")}
    assert anchors <= {*ids}
    assert found.all("html")[0]["lang"] == "en"
    assert len(found.all("h1")) == len(found.all("main")) == 1
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    plots = [d for d in found.all("div") if d.get("class") == "plot"]
    assert len(plots) > 8
    for plot in plots:
        assert plot["role"] == "img" and plot["tabindex"] == "0"
        assert plot["aria-label"].strip()
    tables = [d for d in found.all("details") if d.get("class") == "data"]
    assert len(tables) == len(plots)
    assert all(header["scope"] in ("row", "col") for header in found.all("th"))
    regions = [d for d in found.all("div") if d.get("class") == "scroll"]
    assert all(d["tabindex"] == "0" and d["aria-label"] for d in regions)


def test_the_data_of_each_kind_of_chart_is_a_table(browser, gallery):
    browser.open(gallery)
    tables = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#results figure')].map("
        " (figure) => [figure.querySelector('.chart-title').textContent,"
        " [...figure.querySelectorAll('.data tr')].map("
        " (row) => [...row.cells].map((cell) => cell.textContent))]))"
    )
    long = tables.pop("long")
    assert tables == TABLES
    assert len(long) == 1 + 20 and [*long[0]] == ["series", "steps", "G"]
    assert (long[1][1], long[-1][1]) == ("0", "999")
    notes = "[...document.querySelectorAll('.data .muted')].map((n) => n.textContent)"
    assert browser.evaluate(notes) == ["20 of 1,000 points"]


def test_the_charts_of_two_episodes_have_equal_axes(browser, gallery):
    browser.open(gallery)
    browser.wait_until("document.documentElement.hasAttribute('data-drawn')")
    for axis, domain in (("x", [0, 8]), ("y", [0, 50])):
        found = browser.evaluate(
            "[...document.querySelectorAll('.episode .plot')].map("
            f" (plot) => plot.figure.vega.scale('{axis}').domain())"
        )
        assert found == [domain, domain]
    assert browser.problems == []


CURVE = "document.querySelector('#learning .plot')"
DOMAIN = f"{CURVE}.figure.vega.scale('x').domain()"


def test_curves_are_zoomed_by_dragging_and_keys(browser):
    browser.evaluate(
        f"{CURVE}.scrollIntoView({{block: 'center', behavior: 'instant'}})"
    )
    assert browser.evaluate(DOMAIN) == [0, 29]
    left, top, width, height = browser.evaluate(
        f"(() => {{ const f = {CURVE}.figure, r = f.plot.getBoundingClientRect();"
        " return [r.left + f.vega.origin()[0], r.top + f.vega.origin()[1],"
        " f.vega.width(), f.vega.height()]; })()"
    )
    browser.drag(left + width / 4, left + width / 2, top + height / 2)
    browser.wait_until(f"{DOMAIN}[0] > 0")
    assert browser.evaluate(DOMAIN) == pytest.approx([29 / 4, 29 / 2], abs=0.2)
    assert browser.evaluate("location.hash").startswith("#range=7.")
    browser.evaluate(f"{CURVE}.focus({{preventScroll: true}})")
    browser.press("0")
    browser.wait_until(f"{DOMAIN}[0] === 0")
    browser.press("+")
    browser.wait_until(f"{DOMAIN}[0] > 0")
    assert browser.evaluate(DOMAIN) == [8, 22]
    browser.press("-")
    browser.wait_until(f"{DOMAIN}[1] > 28")
    assert browser.problems == []


def test_axes_are_logarithmic_and_curves_smooth_only_if_asked(browser):
    caption = "document.querySelector('#learning figcaption').innerText"
    assert "Smoothed" not in browser.evaluate(caption)
    for box in range(2):
        browser.evaluate(f"document.querySelectorAll('.bar input')[{box}].click()")
    browser.wait_until(f"{CURVE}.figure.vega.scale('y').type === 'log'")
    assert browser.evaluate(f"{CURVE}.figure.vega.scale('x').type") == "log"
    assert browser.evaluate(DOMAIN) == [1, 29]
    browser.evaluate("page.setView({smooth: 0.5})")
    browser.wait_until(f"{caption}.includes('Smoothed')")
    assert browser.evaluate("location.hash") == "#log=xy&smooth=0.5"
    # By hand: (0.5 · 1.5 + 1 · 2.5) / 1.5, without the bias of the first point.
    rows = browser.evaluate(f"{CURVE}.figure.vega.data('points').slice(0, 2)")
    assert [row["y"] for row in rows] == pytest.approx([1.5, 1.5 + 2 / 3])
    assert browser.problems == []


def test_arrow_keys_read_a_chart_out(browser):
    browser.evaluate("document.querySelector('#learning .plot').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        browser.press(key)
    readout = "document.querySelector('#learning .readout').textContent"
    assert (
        browser.evaluate(readout) == ("2 – <i>other: 2.5 (2 to 3); ppo: 2.5 (2 to 3)")
        or browser.evaluate(readout) == "2 – ppo: 2.5 (2 to 3); <i>other: 2.5 (2 to 3)"
    )
    browser.press("Escape")
    assert browser.evaluate(readout) == ""


def test_a_film_plays_only_when_asked_and_moves_the_charts(browser):
    output = "document.querySelector('.film output').textContent"
    assert browser.evaluate(output).startswith("step 0 ")
    browser.evaluate("document.querySelector('.play').click()")
    browser.wait_until(f"!{output}.startsWith('step 0 ')")
    browser.wait_until("document.querySelector('.play').ariaLabel === 'Play'")  # ends
    assert re.match(r"step [1-9]\d* · return", browser.evaluate(output))
    pixels = browser.evaluate(
        "[...document.querySelector('.film canvas').getContext('2d')"
        ".getImageData(0, 0, 100, 100).data].some((value) => value > 0 && value < 255)"
    )
    assert pixels


def test_injected_scripts_do_not_run(browser):
    browser.evaluate(
        "(() => { const s = document.createElement('script');"
        " s.textContent = 'window.attacked = true'; document.body.append(s); })()"
    )
    assert browser.evaluate("window.attacked") is None
    assert any("Content Security Policy" in each for each in browser.problems)
    browser.clear()
