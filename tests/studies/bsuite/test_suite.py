"""`rlcli bsuite`: from a recipe to scores."""

import json
import sys
import time

import pytest
from folders import write_run
from suites import write_record

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.runs.run_folder import is_run
from rlcli.runs.study_record import find_study
from rlcli.studies.study_grid import read_cell
from rlcli.studies.study_loop import CellEnd, StudyLoop
from rlcli.studies.train_study import train_recorded


def write_sweep(folder):
    """The folder of a sweep with two runs, one of which has not begun."""
    ids = {"catch/0": ["catch-0-1", 0], "catch/1": ["catch-0-1", 1]}
    ids["bandit/3"] = ["bandit-3", 0]
    run = folder / "runs" / "catch-0-1"
    run.mkdir(parents=True)
    info = {"recipe": "mine", "set": [], "seed": 0}
    info |= {"mnist": None, "smoke": False, "chosen": [*ids], "ids": ids}
    info["notes"] = ["left out: mnist"]
    write_record(folder, info)
    rows = [
        {"T": 90_000, "seed": seed, "ep": 10_000, "t": 9, "G": 1.0, "avg_G": 1.0}
        | {"total_return": 9_000.0, "total_regret": 4_000.0 * (1 + seed)}
        for seed in (0, 1)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (run / "metrics.jsonl").write_text(lines)
    return folder


@pytest.mark.slow
def test_the_folder_of_a_sweep_is_scored_again(tmp_path, capsys):
    folder = write_sweep(tmp_path / "sweep")
    data = rlcli.bsuite(folder)
    (catch,) = data["experiments"]
    assert catch["score"] == pytest.approx((1.6 - 0.6) / 1.6)  # mean regret 0.6
    assert (catch["ids"], catch["all_ids"], catch["finished"]) == (2, 20, True)
    assert {each["tag"]: each["experiments"] for each in data["tags"]} == {
        **dict.fromkeys(("exploration", "generalization", "memory"), 0),
        **dict.fromkeys(("noise", "scale"), 0),
        **dict.fromkeys(("basic", "credit_assignment"), 1),
    }
    assert json.loads((folder / "scores.json").read_text())["tags"] == data["tags"]
    assert "| catch | 0.625 | 2 of 20 | yes |" in (folder / "scores.md").read_text()
    assert (folder / "radar.png").read_bytes().startswith(b"\x89PNG")
    names = {path.name for path in (folder / "results").iterdir()}
    assert names == {"bsuite_id_-_catch-0.csv", "bsuite_id_-_catch-1.csv"}
    assert main(["bsuite", str(folder)]) == 0
    captured = capsys.readouterr()
    assert "0.625" in captured.out and captured.out.splitlines()[-1] == str(folder)
    assert "left out: mnist" in captured.err
    assert "no finished episode: bandit/3" in captured.err
    assert main(["bsuite", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == data


@pytest.fixture
def planned(monkeypatch):
    """The cells of a sweep, whose runs do not train."""
    cells = []

    def keep(own, **keywords):
        cells.extend(own)
        return []

    monkeypatch.setattr("rlcli.studies.bsuite.suite.train_recorded", keep)
    return cells


def test_runs_have_the_environment_and_the_budget_of_bsuite(tmp_path, planned):
    sets = ["environment.num_envs=3", "tracer.gamma=0.5"]
    words = ["catch_noise/5", "catch_noise/6", "discounting_chain/4"]
    data = rlcli.bsuite("dqn_catch", words, set=sets, seed=7, run=tmp_path / "sweep")
    assert [cell.folder.name for cell in planned] == [
        "catch_noise-5-6",
        "discounting_chain-4",
    ]
    noise, chain = (load_recipe(read_cell(cell)) for cell in planned)
    assert noise.environment.name == "bsuite/Catch"
    assert [wrapper.name for wrapper in noise.wrappers] == [
        "reward_noise",
        "log_return",
    ]
    assert noise.wrappers[0].options["scale"] == 0.3
    assert (noise.train.seed, noise.train.seeds, noise.num_envs) == (8, 2, 3)
    # Three environments and 10,000 episodes: 3,334 rounds, of which four have one row.
    assert noise.train.log.every == 4 * 27 and noise.train.steps == 3_336 * 27
    assert noise.tracer.options["gamma"] == 0.5
    assert chain.environment.options["mapping_seed"] == 4
    assert chain.train.steps == 334 * 300 and chain.train.log.every == 300
    assert chain.train.evaluate.every is chain.train.stop is None
    assert data["experiments"] == []
    ids = json.loads((tmp_path / "sweep" / "study.json").read_text())["bsuite"]["ids"]
    assert ids["catch_noise/6"] == ["catch_noise-5-6", 9]


@pytest.mark.slow
def test_mnist_is_left_out_without_its_images(tmp_path, planned):
    data = rlcli.bsuite("dqn_catch", ["generalization"], run=tmp_path / "a")
    names = {cell.folder.name.split("-")[0] for cell in planned}
    assert "cartpole" in names and not any("mnist" in name for name in names)
    assert data["notes"][0].startswith("left out: mnist, mnist_noise, mnist_scale")
    with pytest.raises(RlcliError, match="MNIST need its images"):
        rlcli.bsuite("dqn_catch", ["mnist/1"], run=tmp_path / "b")
    planned.clear()
    rlcli.bsuite("dqn_catch", ["mnist/1"], mnist=tmp_path, run=tmp_path / "c")
    assert f'"path": "{tmp_path}"' in " ".join(planned[0].sets)


def test_errors_come_before_any_work(tmp_path, planned, monkeypatch):
    sweep = write_sweep(tmp_path / "sweep")
    for arguments, keywords, message in [
        (("dqn_catch", ["cach"]), {}, "no id, experiment or tag `cach`"),
        (("dqn_katch",), {}, "dqn_katch"),
        ((sweep, ["catch"]), {}, "folder of a study"),
        ((sweep,), {"seed": 3, "resume": True}, "cannot change: `seed`, `runs`"),
        ((sweep,), {"runs": None, "smoke": True}, "cannot change: `smoke`"),
        (("dqn_catch",), {"run": sweep}, "contains a sweep already"),
        (("dqn_catch",), {"set": ["trian.steps=1"]}, "trian"),
    ]:
        with pytest.raises(RlcliError, match=message):
            rlcli.bsuite(*arguments, **{"runs": tmp_path / "runs", **keywords})
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("rlcli.results.figure.missing_modules", lambda extra: [extra])
    with pytest.raises(RlcliError, match="require matplotlib"):
        rlcli.bsuite("dqn_catch", runs=tmp_path / "runs")
    assert planned == [] and not (tmp_path / "runs").exists()


def test_the_exit_code_is_that_of_several_runs(tmp_path, monkeypatch, capsys):
    def fail(cells, *, report, **keywords):
        ended = [CellEnd(cell, 1, "no memory") for cell in cells]
        report(cells, ended)
        return ended

    monkeypatch.setattr("rlcli.studies.bsuite.suite.train_recorded", fail)
    assert main(["bsuite", "dqn_catch", "catch/3", "--run", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "`catch-3`: no memory" in error and "no finished episode: catch/3" in error


@pytest.mark.slow
def test_a_sweep_is_resumed_with_its_own_options(tmp_path, monkeypatch):
    """A run that has finished, one that was interrupted, and one that has not begun."""
    groups, options, limits = [], [], []

    class Loop(StudyLoop):
        def __init__(self, *arguments, max_time, **keywords):
            super().__init__(*arguments, max_time=max_time, **keywords)
            options.append(arguments[-1])
            limits.append(max_time)

        def run(self, given=()):
            groups.append([cell.label for (cell,) in given])
            return ""

    monkeypatch.setattr("rlcli.studies.train_study.StudyLoop", Loop)
    words = ["deep_sea/0", "deep_sea/1", "deep_sea/2"]
    keywords = {"set": ["tracer.gamma=0.5"], "seed": 4, "smoke": True}
    rlcli.bsuite("dqn_catch", words, run=tmp_path, **keywords)
    study = find_study(tmp_path)
    assert study is not None and all(cell.is_smoke for cell in study.cells)
    for index, status in enumerate(("finished", "interrupted")):
        run = tmp_path / "runs" / f"deep_sea-{index}"
        write_run(run, status=status, imports=["mine.network"])
    rlcli.bsuite(tmp_path, resume=True, max_time="1h")
    rlcli.bsuite(tmp_path, resume=True, trust=True, max_time="1h")
    left = ["runs/deep_sea-1", "runs/deep_sea-2"]
    assert groups == [["runs/deep_sea-0", *left], left, left]
    # What the files say about `imports` does not matter: their author may be another.
    trusts = (["--trust"], [], ["--trust"])
    assert options == [*trusts]
    before_limit, limit, _ = limits
    assert before_limit is None
    assert limit == pytest.approx(time.monotonic() + 3_600, abs=60)
    with pytest.raises(RlcliError, match="not the folder of a sweep"):
        rlcli.bsuite("dqn_catch", resume=True)


@pytest.mark.parametrize("field", ["set", "chosen", "smoke"])
def test_a_damaged_record_of_a_sweep_is_named(field, tmp_path):
    folder = write_sweep(tmp_path / "sweep")
    info = json.loads((folder / "study.json").read_text())["bsuite"]
    write_record(folder, {**info, field: 3})
    with pytest.raises(RlcliError, match=rf"study.json` is damaged: `{field}` is `3`"):
        rlcli.bsuite(folder)


@pytest.mark.slow
def test_a_recipe_is_trained_and_scored(tmp_path):
    words = ["catch/0", "catch/1", "discounting_chain/0"]
    keywords = {"smoke": True, "jobs": 1, "run": tmp_path}
    data = rlcli.bsuite("dqn_catch", words, **keywords)
    assert [each["ids"] for each in data["experiments"]] == [2], data["notes"]
    missing, unfinished = data["notes"]  # 256 steps are not enough for an episode
    assert missing == "no finished episode: discounting_chain/0"
    assert unfinished.startswith("fewer episodes than bsuite has")
    assert is_run(tmp_path / "runs" / "catch-0-1")
    header = (tmp_path / "results" / "bsuite_id_-_catch-1.csv").read_text()
    assert "total_regret" in header and "total_return" in header


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_the_others_are_scored(tmp_path, monkeypatch):
    def fail(cells, **keywords):
        ended = train_recorded(cells[:1], **keywords)
        return [*ended, CellEnd(cells[1], 1, "no memory")]

    monkeypatch.setattr("rlcli.studies.bsuite.suite.train_recorded", fail)
    words = ["catch/0", "discounting_chain/0"]
    data = rlcli.bsuite("dqn_catch", words, smoke=True, run=tmp_path)
    assert [each["experiment"] for each in data["experiments"]] == ["catch"]
    assert "`discounting_chain-0`: no memory" in data["notes"]
