"""The board's server: who gets an answer, and what damaged or hostile runs can do."""

import json
import os
import shutil
import threading
import urllib.request

import pytest
from asgi import request
from folders import OTHER_RATE, RESOLVED, evaluation, snapshot, write_run

import rlcli
from rlcli.errors import RlcliError

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from rlcli.results.board import board as board_module
from rlcli.results.board.app import make_app
from rlcli.results.board.run_index import RunIndex
from rlcli.results.report import page

TOKEN, PORT, HOST = "a-token", 8000, "127.0.0.1:8000"
ATTACK = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def small_library(monkeypatch):
    monkeypatch.setattr(page, "_library", lambda: "window.vegaEmbed = null;")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """The index looks at the folders at every request."""
    monkeypatch.setattr("rlcli.results.board.run_index._PERIOD", 0.0)
    monkeypatch.setattr("rlcli.results.board.run_index._LOAD", 0.0)


def rows(steps=6, seeds=2, factor=1.0):
    return [
        row
        for step in range(1, steps + 1)
        for seed in range(seeds)
        for row in (
            {"T": 100 * step, "seed": seed, "avg_G": factor * step + seed, "loss": 1.0},
            {"T": 100 * step, "seed": seed, "evaluation": evaluation(10.0 * step)},
        )
    ]


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    write_run(folder / "a", rows=rows())
    write_run(folder / "b", rows=rows(factor=2.0), resolved=OTHER_RATE, status="failed")
    return folder


@pytest.fixture
def get(runs):
    app = make_app(RunIndex([runs]), TOKEN, PORT)

    def send(target, method="GET", host=HOST, token=TOKEN):
        return request(app, f"/{token}/{target}", method, host)

    return send


def listed(get, filter=""):
    found = get(f"runs?filter={filter}").data
    by_id = {each["id"]: each for each in found["rows"]}
    return [by_id[id] for id in found["ids"]]


def test_the_page_allows_only_its_own_scripts_and_style(get):
    found = get("")
    assert found.status == 200
    policy = found.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy
    assert "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("target", ["", "runs", "film?run=x&name=y", "nothing"])
def test_every_answer_has_the_headers(get, target):
    for found in (get(target), get(target, token="wrong"), get(target, host="evil")):
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert found.headers["cache-control"] == "no-store"
        assert "content-security-policy" in found.headers
        assert not any("access-control" in name for name in found.headers)
        assert "set-cookie" not in found.headers


@pytest.mark.parametrize("token", ["", "A-token", "a-toke", "a-tokenx", "é"])
def test_without_the_token_nothing_is_sent(get, token):
    assert get("runs", token=token).status == 403


@pytest.mark.parametrize("host", ["", "evil.com", "evil.com:8000", "127.0.0.1:9"])
def test_another_host_gets_nothing(get, host):
    found = get("runs", host=host)
    assert (found.status, found.body) == (421, b"another host")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_it_only_reads(get, method):
    assert get("runs", method).status == 405


def test_no_file_changes(get, runs):
    before = snapshot(runs)
    for name in ("learning", "diagnostics", "recipes", "provenance", "films"):
        assert "error" not in get(f"part/{name}").data
    assert snapshot(runs) == before


def test_results_and_curves_are_those_of_the_report(get, runs, tmp_path):
    found = get("part/learning").data
    file = rlcli.report(runs, output=tmp_path / "r.html", episodes=0)
    text = file.read_text().partition('id="document">')[2].partition("</script>")[0]
    report = json.loads(text)["page"]
    (live,), (frozen,) = found["learning"], report["learning"]
    for name in ("cards", "curves", "results", "tables", "spread"):
        assert live[name] == frozen[name]
    other = get("part/diagnostics").data["learning"][0]
    assert other["diagnostics"] == frozen["diagnostics"]
    for part, names in (
        ("recipes", ("recipes", "recipe_differences")),
        ("provenance", ("runs", "machine_differences")),
    ):
        assert {name: get(f"part/{part}").data[name] for name in names} == {
            name: report[name] for name in names
        }


def test_a_filter_has_words_and_conditions(get):
    assert [each["run"][-1] for each in listed(get)] == ["a", "b"]
    assert [each["run"][-1] for each in listed(get, "failed")] == ["b"]
    assert [each["run"][-1] for each in listed(get, "FINISHED+dqn")] == ["a"]
    found = listed(get, "optimizer.learning_rate%3E0.001")
    assert [each["run"][-1] for each in found] == ["b"]
    answer = get("runs?filter=no.such%3D1").data
    assert "no run has `no.such`" in answer["error"]


def test_a_selection_shows_its_runs_only(get):
    first, _ = listed(get)
    found = get(f"part/learning?runs={first['id']}&y=loss").data
    assert len(found["labels"]) == 1
    assert found["learning"][0]["metric"] == "loss"


def test_only_what_changed_is_sent_again(get, runs):
    first = get("runs").data
    same = get(f"runs?known={first['version']}").data
    assert same["rows"] == [] and same["version"] == first["version"]
    line = {"T": 700, "seed": 0, "avg_G": 50.0}
    with (runs / "a" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n" + json.dumps(line | {"seed": 1}) + "\n")
    later = get(f"runs?known={first['version']}").data
    assert [each["run"][-1] for each in later["rows"]] == ["a"]
    write_run(runs / "c", rows=rows())
    newest = get(f"runs?known={later['version']}").data
    assert [each["run"][-1] for each in newest["rows"]] == ["c"]
    assert len(newest["ids"]) == 3


def test_curves_continue_with_new_rows_and_begin_again_after_a_resume(get, runs):
    def ends(y="avg_G"):
        found = get(f"part/learning?y={y}").data["learning"][0]["curves"][0]["blocks"]
        return [block["x"][-1] for block in found]

    assert ends() == [600, 600]
    path = runs / "a" / "metrics.jsonl"
    before = path.read_bytes()
    lines = [{"T": 700, "seed": seed, "avg_G": 9.0} for seed in range(2)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(before + text.encode() + b'{"T": 800, "se')
    assert ends() == [700, 600]
    kept = before.splitlines(keepends=True)[:16]
    path.write_bytes(b"".join(kept))
    assert ends() == [400, 600]


def test_many_rows_are_sampled_with_a_note(get, runs, monkeypatch):
    series = "rlcli.results.board.live_series."
    monkeypatch.setattr(f"{series}COMPLETE", 1_000)
    monkeypatch.setattr(f"{series}SAMPLE", 20_000)
    monkeypatch.setattr(f"{series}_LEAST", 6_000)
    lines = [{"T": step, "seed": 0, "avg_G": step / 2} for step in range(1, 5_001)]
    write_run(runs / "long", rows=lines, recipe="long")
    ids = [each["id"] for each in listed(get, "long")]
    found = get(f"part/learning?runs={ids[0]}&y=avg_G").data
    (note,) = (each for each in found["notes"] if "sample" in each)
    assert "select fewer runs" in note
    (block,) = found["learning"][0]["curves"][0]["blocks"]
    assert block["x"][-1] > 4_900 and block["x"][0] < 30
    assert block["y"] == pytest.approx([x / 2 for x in block["x"]], rel=1e-3)
    assert 20 < len(block["x"]) < 1_000


def test_a_damaged_run_is_shown_as_damaged_and_the_others_work(get, runs):
    write_run(runs / "c", rows=rows())
    (runs / "c" / "run.json").write_text('{"seeds": "x"}\n')
    write_run(runs / "d", rows=rows())
    (runs / "d" / "metrics.jsonl").write_text("{}\n" * 5)
    found = {each["run"][-1]: each for each in listed(get)}
    assert found["c"]["status"] == found["d"]["status"] == "broken"
    assert "run.json` is damaged: `seeds`" in found["c"]["reason"]
    assert "\n" not in found["d"]["reason"]
    assert found["a"]["return"] == 60
    learned = get("part/learning").data
    assert len(learned["labels"]) >= 2
    assert any("5 damaged lines ignored" in note for note in learned["notes"])


@pytest.mark.parametrize(
    "fields",
    [
        {"return": "x"},
        {"return": {"a": 1}},
        {"steps": "x"},
        {"steps_per_second": []},
        {"run": ["x"]},
        {"init": {"seeds": 5, "steps": 5}},
        {"cell": {"label": "../..", "values": 5}},
        {"frozen": {"0": {"a": 1}}, "git": "x", "versions": [1], "platform": {}},
    ],
)
@pytest.mark.parametrize("has_status", [True, False])
def test_no_record_stops_the_board(fields, has_status, get, runs):
    info = json.loads((write_run(runs / "c", rows=rows()) / "run.json").read_text())
    if not has_status:
        del info["status"]
    (runs / "c" / "run.json").write_text(json.dumps(info | fields))
    assert [each["run"][-1] for each in listed(get)] == ["a", "b", "c"]
    for name in ("learning", "diagnostics", "recipes", "provenance", "films"):
        answer = get(f"part/{name}")
        assert answer.status == 200 and "error" not in answer.data


def test_a_record_names_no_folder_elsewhere(get, runs, tmp_path):
    outside = RESOLVED.replace("learning_rate: 0.0005", "learning_rate: 77.0")
    secret = write_run(tmp_path / "secret", rows=rows(), resolved=outside)
    assert outside != RESOLVED
    path = write_run(runs / "c", rows=rows()) / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"run": str(secret)}))
    assert listed(get, "optimizer.learning_rate%3E0.0001") != []
    assert listed(get, "optimizer.learning_rate%3D77.0") == []


def test_metrics_may_have_any_name_and_may_begin_late(get, runs):
    odd = [{"T": 100, "seed": 0, "avg_G": 1.0, "": 1.0, "a\\": 1.0, "b\nc": 2.0}]
    write_run(runs / "c", rows=odd)
    names = [each["name"] for each in get("part/learning").data["metrics"]]
    assert {"", "a\\", "b\nc", "loss"} <= {*names}  # of one group with `a`
    assert not {"T", "seed"} & {*names}
    assert get("part/diagnostics").status == 200


def test_what_is_left_out_is_said(get, runs):
    for number in range(28):
        write_run(runs / f"r{number}", rows=rows(steps=1))
    for name in ("provenance", "films"):
        assert get(f"part/{name}").data["notes"] == []
    write_run(runs / "r28", rows=rows(steps=1))
    for name in ("provenance", "films"):
        [note] = get(f"part/{name}").data["notes"]
        assert note.startswith("the first 30 of 31 runs")


def test_runs_that_are_gone_are_counted_no_more_and_named_in_a_selection(get, runs):
    first = listed(get)[0]["id"]
    assert get("runs?filter=nothing").data["total"] == 2
    shutil.rmtree(runs / "a")
    assert get("runs").data["total"] == 1
    [note] = get(f"part/learning?runs={first}").data["notes"]
    assert note == "1 of the selected runs are gone"


def test_text_of_runs_is_text(get, runs):
    write_run(runs / "<img src=x onerror=alert(1)>", rows=rows(), tags=[])
    write_run(runs / "\u202egnp", rows=rows())
    write_run(runs / ("x" * 200), rows=rows())
    bodies = [get(name).body for name in ("runs", "part/learning", "part/provenance")]
    assert all("\u202e".encode() not in body for body in bodies)
    assert len(listed(get)) == 5


def test_links_lead_nowhere(get, runs, tmp_path):
    secret = write_run(tmp_path / "secret", rows=rows())
    (secret / "films").mkdir()
    (secret / "films" / "000000100.gif").write_bytes(b"GIF89a secret")
    (runs / "linked").symlink_to(secret)
    (runs / "a" / "films").symlink_to(secret / "films")
    (runs / "a" / "b.gif").symlink_to(secret / "films" / "000000100.gif")
    (runs / "b" / "metrics.jsonl").unlink()
    (runs / "b" / "metrics.jsonl").symlink_to(secret / "metrics.jsonl")
    found = listed(get)
    assert sorted(each["run"][-1] for each in found) == ["a", "b"]
    assert get("part/films").data["films"] == []
    for name in ("films/000000100.gif", "b.gif"):
        assert get(f"film?run={found[0]['id']}&name={name}").status == 404
    assert {each["run"][-1]: each["status"] for each in found}["b"] == "broken"


NAMES = ["../a/x.gif", "films/../x.gif", "/etc/passwd", "x.gif/", "", "run.json"]


@pytest.mark.parametrize("name", NAMES)
def test_no_other_file_can_be_read(get, runs, name):
    (runs / "a" / "x.gif").write_bytes(b"GIF89a")
    id = listed(get)[1]["id"]
    assert get(f"film?run={id}&name={name}").status == 404
    assert get(f"film?run=..&name={name}").status == 404


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("x.gif", b"GIF89a...", "image/gif"),
        ("x.mp4", b"\0\0\0\x18ftypisom", "video/mp4"),
        ("x.png", b"\x89PNG\r\n\x1a\n", "image/png"),
        ("x.gif", b"<script>alert(1)</script>", None),
        ("x.mp4", b"", None),
    ],
)
def test_a_film_has_the_type_of_its_first_bytes(get, runs, name, content, kind):
    (runs / "a" / name).write_bytes(content)
    found = get(f"film?run={listed(get)[0]['id']}&name={name}")
    if kind is None:
        assert found.status == 404
    else:
        assert (found.headers["content-type"], found.body) == (kind, content)


def test_a_film_that_is_too_large_or_a_pipe_is_refused(get, runs, monkeypatch):
    monkeypatch.setattr("rlcli.results.board.film_files.LARGEST", 10)
    (runs / "a" / "x.gif").write_bytes(b"GIF89a" + bytes(10))
    os.mkfifo(runs / "a" / "y.gif")
    for name in ("x.gif", "y.gif"):
        assert get(f"film?run={listed(get)[0]['id']}&name={name}").status == 404


@pytest.mark.parametrize(
    "query", ["x=hours", "center=max", "range=a,b", "group=no", "y=none"]
)
def test_wrong_choices_are_named(get, query):
    assert get(f"part/learning?{query}").data["error"]


def test_cells_of_a_study_are_a_heat_map(tmp_path, get, runs):
    study = runs / "study"
    cells = {}
    for place, (environment, rate) in enumerate(
        (e, r) for e in ("CartPole-v1", "Acrobot-v1") for r in ("0.1", "0.2")
    ):
        label = f"{environment}/{rate}"
        values = {"recipe": "dqn", "environment": environment, "lr": rate}
        cells[label] = {"recipe": "dqn", "digest": "x", "set": [], "values": values}
        cells[label] |= {"name": None, "tags": [], "smoke": False}
        if place < 3:
            (study / environment).mkdir(parents=True, exist_ok=True)
            write_run(study / label, rows=rows(), resolved=RESOLVED)
    (study / "study.json").write_text(json.dumps({"format": 1, "cells": cells}))
    (found,) = get("runs").data["studies"]
    assert found["states"][0].startswith("4 cells: 3 finished, 1 missing")
    (block,) = found["chart"]["blocks"]
    assert block["column"] == ["CartPole-v1"] * 2 + ["Acrobot-v1"] * 2
    assert block["text"] == ["60", "60", "60", "missing"]
    assert block["row"][0] == "dqn, lr=0.1"


def test_a_board_listens_on_this_machine_and_prints_its_link(runs):
    links, is_ready = [], threading.Event()

    def show_link(link):
        links.append(link)
        is_ready.set()

    thread = threading.Thread(
        target=lambda: board_module.board(runs, show_link=show_link), daemon=True
    )
    thread.start()
    assert is_ready.wait(30)
    (link,) = links
    assert link.startswith("http://127.0.0.1:") and len(link.split("/")[3]) == 32
    with urllib.request.urlopen(f"{link}runs", timeout=30) as answer:
        assert len(json.load(answer)["ids"]) == 2


def test_a_port_that_is_taken_is_an_error(runs):
    with (
        board_module._listen(0) as other,
        pytest.raises(RlcliError, match="cannot be used: Address already in use"),
    ):
        rlcli.board(runs, port=other.getsockname()[1])


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(RlcliError, match="there is no folder"):
        rlcli.board(tmp_path / "none")
