"""Sweeps from beginning to end, through the function of the package."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from folders import read_rows
from sweeps import use_fake_engines
from tiers import quick_first

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.runs import locks, metrics
from rlcli.studies.search import trial_source

pytest.importorskip("optuna")
LAKE = """
environment: FrozenLakeNonSlippery-v0
network: table
updater: {name: q_learning, loss: mse}
optimizer: {name: sgd, learning_rate: 0.5}
train: {steps: 2_000, evaluate: {every: 500, episodes: 2}}
"""
SPACE = """\
optimizer.learning_rate: {log_uniform: [0.01, 1.0]}
tracer.gamma: {choice: [0.9, 0.99]}
"""


@pytest.fixture(autouse=True)
def _files(folder):
    (folder / "lake.yaml").write_text(LAKE)
    (folder / "space.yaml").write_text(SPACE)


@pytest.fixture
def fake(monkeypatch):
    """Sweeps whose runs are written by hand; returns the engines."""

    def curve(options, seed, step):
        return options["tracer.gamma"] * step + options.get(
            "optimizer.learning_rate", 0
        )

    return use_fake_engines(monkeypatch, curve)


def start(**keywords):
    options = {"space": "space.yaml", "trials": 4, "seeds": 2, "jobs": 2}
    options |= {"sampler": "random", "pruner": "none", "confirm": 1, "together": 1}
    return rlcli.sweep("lake.yaml", **options | keywords)


def test_a_sweep_has_a_folder_with_all_that_it_needs(fake):
    path = start(name="first", set=["train.steps=3000"], seed=7)
    assert path == Path("runs/sweeps/lake/first").absolute()
    assert {each.name for each in path.iterdir()} >= {
        *("study.json", "journal.log", "result.json", "trials", "confirm"),
    }
    record = json.loads((path / "study.json").read_text())
    assert record["search"]["space"] == SPACE
    labels = [f"trials/{number:04d}" for number in range(4)]
    assert [*record["cells"]][:4] == labels
    assert record["cells"][labels[0]]["set"][0] == "train.steps=3000"
    job = fake[0].started[0]
    assert job == ("trials/0000", "train")
    data = rlcli.show_sweep(path)
    assert data["status"] == "finished"
    assert data["counts"] == {"complete": 4}
    assert data["winner"]["trial"] == data["best"]["trial"]
    assert len(data["winner"]["seeds"]) == 2
    assert {each["option"] for each in data["slices"]} == {
        *("optimizer.learning_rate", "tracer.gamma"),
    }


@pytest.mark.usefixtures("fake")
def test_the_importance_of_options_needs_two_different_results():
    assert rlcli.show_sweep(start(trials=1, confirm=0))["importance"] == {}
    keys = {"optimizer.learning_rate", "tracer.gamma"}
    assert {*rlcli.show_sweep(start(trials=4, confirm=0))["importance"]} == keys


@pytest.mark.parametrize(
    "sampler", quick_first(["tpe", "random", "grid", "cmaes", "nsga2"])
)
def test_every_sampler_with_one_process_makes_the_same_trials_again(fake, sampler):
    space = {
        "optimizer.learning_rate": {"log_uniform": [0.01, 1.0], "points": 6},
        "tracer.gamma": {"uniform": [0.9, 0.99], "points": 3},
    }
    found = []
    for name in ("a", "b"):
        path = start(
            name=name, space=space, sampler=sampler, trials=14, jobs=1, confirm=0
        )
        trials = rlcli.show_sweep(path)["trials"]
        found.append([(each["options"], each["value"]) for each in trials])
    assert found[0] == found[1]
    assert len(found[0]) == 14
    assert len({json.dumps(options) for options, _ in found[0]}) == 14


def test_a_grid_has_as_many_trials_as_combinations(fake):
    space = {"tracer.gamma": {"choice": [0.9, 0.95, 0.99]}}
    keywords = {"space": space, "sampler": "grid", "confirm": 0}
    assert len(rlcli.show_sweep(start(trials=None, **keywords))["trials"]) == 3
    assert len(rlcli.show_sweep(start(trials=9, **keywords))["trials"]) == 3
    assert len(rlcli.show_sweep(start(trials=2, **keywords))["trials"]) == 2


def test_a_sweep_is_resumed_by_its_folder_its_name_or_as_the_newest(fake):
    path = start(name="first")
    for target, keywords in (
        (path, {}),
        ("lake.yaml", {"name": "first"}),
        ("lake.yaml", {"run": path}),
        ("lake.yaml", {}),
        ("lake.yaml", {"space": "space.yaml", "seeds": 2, "sampler": "random"}),
    ):
        assert rlcli.sweep(target, resume=True, **keywords) == path
    assert sum(len(engine.started) for engine in fake[1:]) == 0
    rlcli.sweep(path, resume=True, trials=6)
    assert len(rlcli.show_sweep(path)["trials"]) == 6


@pytest.mark.slow
def test_a_sweep_may_keep_its_trials_in_a_database(fake):
    pytest.importorskip("sqlalchemy")
    url = "sqlite:///trials.db"
    path = start(storage=url)
    assert not (path / "journal.log").exists()
    assert len(rlcli.show_sweep(path, storage=url)["trials"]) == 4
    rlcli.sweep(path, resume=True, storage=url, trials=5)
    assert len(rlcli.show_sweep(path, storage=url)["trials"]) == 5


@pytest.mark.parametrize(
    ("recipe", "keywords", "message"),
    [
        ("nope", {}, "there is no recipe `nope`"),
        ("lake.yaml", {"space": None}, "a sweep needs a space"),
        ("lake.yaml", {"space": {"tracer.gama": {"int": [0, 1]}}}, "no option `gama`"),
        ("lake.yaml", {"sampler": "tep"}, "`sampler` cannot be `tep`"),
        ("lake.yaml", {"pruner": "x"}, "`pruner` cannot be `x`"),
        ("lake.yaml", {"objective": "x"}, "there is no objective `x`"),
        ("lake.yaml", {"trials": 0}, "`trials` cannot be 0: expected ≥ 1"),
        ("lake.yaml", {"together": 0}, "`together` cannot be 0: expected ≥ 1"),
        ("lake.yaml", {"set": ["train.evaluate=null"]}, "the recipe has none"),
        ("lake.yaml", {"set": ["train.evaluate.every=2001"]}, "the recipe has none"),
        ("lake.yaml", {"set": ["vary={train.start: [0, 9]}"]}, "has a section `vary`"),
        (
            "lake.yaml",
            {"objective": "auc", "set": ["train.stop.return=1"]},
            "`auc` cannot have `train.stop`",
        ),
        ("lake.yaml", {"sampler": "grid"}, "a grid needs the number of values"),
        ("lake.yaml", {"run": "lake.yaml"}, "`lake.yaml` exists already"),
        ("lake.yaml", {"name": "a/b"}, "cannot be the name"),
        ("lake.yaml", {"engine": "rya"}, "`engine` cannot be `rya`"),
        (
            "lake.yaml",
            {"gpus": 1},
            "of `--engine ray` or `--engine slurm`, not of `local`",
        ),
        ("lake.yaml", {"engine": "ray", "cpus": 0}, "cannot have 0 CPUs and 0 GPUs"),
        ("lake.yaml", {"storage": "nope://x"}, "`nope://x` cannot be opened"),
        ("lake.yaml", {"resume": True}, "there is no sweep to resume"),
        (".", {"resume": True}, "is not the folder of a sweep"),
    ],
)
def test_what_is_wrong_is_said_before_anything_begins(
    recipe, keywords, message, folder, fake
):
    options = {"space": "space.yaml", **keywords}
    with pytest.raises(RlcliError, match=message):
        rlcli.sweep(recipe, **options)
    assert not any(engine.started for engine in fake)
    assert not (folder / "runs").exists()


def test_a_resume_with_another_space_recipe_or_option_is_refused(fake, folder):
    path = start(name="first")
    with pytest.raises(RlcliError, match="with `sampler` `random`, not `tpe`"):
        rlcli.sweep(path, resume=True, sampler="tpe")
    with pytest.raises(RlcliError, match="with `confirm_seeds` `2`, not `3`"):
        rlcli.sweep(path, resume=True, confirm_seeds=3)
    with pytest.raises(RlcliError, match=r"`set` `none`, not `train\.steps=9`"):
        rlcli.sweep(path, resume=True, set=["train.steps=9"])
    with pytest.raises(RlcliError, match="whose options cannot change: `name`"):
        rlcli.sweep(path, resume=True, name="other")
    for name in ("/abs", "*"):
        with pytest.raises(RlcliError, match="cannot be the name"):
            rlcli.sweep("lake.yaml", resume=True, name=name)
    space = {"tracer.gamma": {"uniform": [0.5, 0.9]}}
    with pytest.raises(RlcliError, match="with another space"):
        rlcli.sweep(path, resume=True, space=space)
    with pytest.raises(RlcliError, match="is the folder of a sweep, not a recipe"):
        rlcli.sweep(path)
    with pytest.raises(RlcliError, match="exists already"):
        rlcli.sweep("lake.yaml", space="space.yaml", run=path)
    (folder / "lake.yaml").write_text(LAKE.replace("0.5", "0.4"))
    with pytest.raises(RlcliError, match="the recipe `lake` has changed since"):
        rlcli.sweep(path, resume=True)


def test_only_one_process_continues_a_sweep(fake):
    path = start()
    with locks.hold(path):
        with pytest.raises(RlcliError, match="another process is already"):
            rlcli.sweep(path, resume=True)
        assert rlcli.show_sweep(path)["status"] == "finished"


def test_without_optuna_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr(
        "rlcli.registry.libraries.missing_modules", lambda extra: ["optuna"]
    )
    with pytest.raises(RlcliError, match="requires `optuna`: not installed") as error:
        start()
    assert error.value.hint.startswith("pip install")


def test_the_winner_is_exported_as_a_recipe(fake, folder):
    path = start(name="first")
    run = path / rlcli.show_sweep(path)["winner"]["run"]
    (run / "resolved.yaml").write_text("updater: dqn\n")
    written = rlcli.export_sweep(path, "new/best.yaml")
    first, *rest = written.read_text().splitlines()
    assert first.startswith("# Winner (trial ")
    assert rest == ["updater: dqn"]
    (path / "trials/0002/resolved.yaml").write_text("updater: ppo\n")
    written = rlcli.export_sweep(path, "best.yaml", trial=2)
    assert written.read_text() == "# Trial 2 of the sweep first\nupdater: ppo\n"
    for keywords, message in (
        ({"output": "best.txt"}, "not the name of a recipe"),
        ({"output": "best.yaml", "trial": 99}, "has no trial 99"),
    ):
        with pytest.raises(RlcliError, match=message):
            rlcli.export_sweep(path, **keywords)
    (run / "resolved.yaml").unlink()
    with pytest.raises(RlcliError, match="the run of the winner, is missing"):
        rlcli.export_sweep(path, "best.yaml")
    (path / "result.json").unlink()
    with pytest.raises(RlcliError, match="has no winner yet"):
        rlcli.export_sweep(path, "best.yaml")
    with pytest.raises(RlcliError, match="is not the folder of a sweep"):
        rlcli.export_sweep("runs", "best.yaml")


def test_a_damaged_sweep_is_a_clear_error(fake):
    path = start()
    (path / "journal.log").unlink()
    with pytest.raises(RlcliError, match="is missing: it stores the trials"):
        rlcli.show_sweep(path)
    change_record(path, search=3)
    with pytest.raises(RlcliError, match="is damaged: `search` is `3`"):
        rlcli.show_sweep(path)


def change_record(path, **changes):
    record = json.loads((path / "study.json").read_text())
    (path / "study.json").write_text(json.dumps(record | changes))
    return record


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": "x"}, "is damaged: `trials` is"),
        ({"objective": 3}, "is damaged: `objective` is"),
        ({"set": [3]}, "is damaged: `set` is"),
        ({"space": None}, "is damaged: `space` is"),
        ({"recipe": {"name": ".."}}, "is damaged: `recipe` is"),
        ({"sampler": "tep"}, "`sampler` cannot be `tep`"),
        ({"space": "x: {y: 1}"}, r"study\.json: "),
    ],
)
def test_settings_of_another_type_are_a_clear_error(fake, changes, message):
    path = start()
    search = change_record(path)["search"]
    change_record(path, search=search | changes)
    with pytest.raises(RlcliError, match=message):
        rlcli.sweep(path, resume=True)


COMMAND = [sys.executable, "-m", "rlcli", "sweep", "lake.yaml", "--space", "space.yaml"]
COMMAND += ["--trials", "3", "--seeds", "2", "--sampler", "random", "--pruner", "none"]
COMMAND += ["--confirm", "1", "--jobs", "2"]


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.slow
def test_a_sweep_whose_driver_is_killed_ends_as_an_undisturbed_one(folder):
    subprocess.run([*COMMAND, "--name", "a"], check=True, capture_output=True)
    undisturbed = rlcli.show_sweep("runs/sweeps/lake/a")
    process = subprocess.Popen(
        [*COMMAND, "--name", "b"], stderr=subprocess.PIPE, text=True
    )
    path = folder / "runs/sweeps/lake/b"
    wait_for((path / "trials/0001/metrics.jsonl").is_file, process)
    process.kill()
    process.communicate()
    assert rlcli.show_sweep(path)["status"] == "killed"
    resume = [sys.executable, "-m", "rlcli", "sweep", str(path), "--resume"]
    subprocess.run(resume, check=True, capture_output=True)
    resumed = rlcli.show_sweep(path)
    for name in ("counts", "winner", "confirmed", "importance"):
        assert resumed[name] == undisturbed[name]
    for one, other in zip(undisturbed["trials"], resumed["trials"], strict=True):
        assert read_rows(one["run"]) == read_rows(other["run"])
        assert (one["options"], one["value"]) == (other["options"], other["value"])
    # The exported recipe makes the winner's run again, to the byte.
    assert main(["sweep", "export", str(path), "best.yaml"]) == 0
    run = rlcli.train("best.yaml", run="again")
    best = path / resumed["winner"]["run"]
    assert read_rows(run) == read_rows(best)
    policy = "policy.pkl.lz4"
    assert (run / policy).read_bytes() == (best / policy).read_bytes()


@pytest.mark.slow
def test_trials_that_are_trained_together_have_the_results_of_trials_alone(folder):
    """Up to rounding; with another structure they have a program of their own."""
    space = {
        "optimizer.learning_rate": {"log_uniform": [0.01, 1.0]},
        "network": {"choice": ["table", "linear"]},
    }
    found = []
    for together in (6, 1):
        options = {"name": f"t{together}", "trials": 6, "jobs": 1, "confirm": 0}
        path = start(space=space, together=together, **options)
        found.append(rlcli.show_sweep(path))
    for one, other in zip(*(each["trials"] for each in found), strict=True):
        assert one["options"] == other["options"]
        assert one["state"] == other["state"] == "complete"
        assert one["seeds"] == pytest.approx(other["seeds"])
    infos = [
        json.loads((Path(each["run"]) / "run.json").read_text())
        for each in found[0]["trials"]
    ]
    members = {tuple(info.get("members", [f"{n:04d}"])) for n, info in enumerate(infos)}
    kinds = [each["options"]["network"] for each in found[0]["trials"]]
    assert members == {
        tuple(f"{n:04d}" for n in range(6) if kinds[n] == kind) for kind in {*kinds}
    }


@pytest.mark.slow
def test_a_program_without_its_pruned_trials_goes_on_as_before(folder, monkeypatch):
    monkeypatch.setattr(trial_source, "_RESTART", 0.0)
    # Many learning rates are too small to learn anything.
    keywords = {
        "space": {"optimizer.learning_rate": {"log_uniform": [1e-30, 1.0]}},
        "set": ["policy.epsilon=0.5", "train.steps=300_000"],
        **{"trials": 6, "jobs": 1, "confirm": 0, "together": 6},
    }
    keywords["set"] += ["train.evaluate.every=5_000", "train.log.every=5_000"]
    pruned = rlcli.show_sweep(start(name="pruned", pruner="asha", **keywords))
    whole = rlcli.show_sweep(start(name="whole", **keywords))
    assert whole["counts"] == {"complete": 6}
    assert pruned["counts"].keys() <= {"complete", "pruned"}
    for one, other in zip(pruned["trials"], whole["trials"], strict=True):
        assert one["options"] == other["options"]
        for step, value in one["rungs"].items():
            assert value == pytest.approx(other["rungs"][step])
        if one["state"] == "complete":
            assert one["seeds"] == pytest.approx(other["seeds"])


@pytest.mark.slow
def test_ctrl_c_saves_all_trials_and_says_how_to_go_on(folder):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a job in a script
    try:
        process = subprocess.Popen(
            [*COMMAND, "--name", "a", "--set", "train.steps=500_000_000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    path = folder / "runs/sweeps/lake/a"
    runs = [path / "trials/0000", path / "trials/0001"]
    # Before its first rows a program compiles. A signal then ends its process after a
    # few seconds, without a checkpoint, if compiling takes longer than that.
    wait_for(lambda: all(metrics.read_metrics(run) for run in runs), process)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == "runs/sweeps/lake/a\n"
    assert "rlcli sweep runs/sweeps/lake/a --resume\n" in err
    for run in runs:
        assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
        assert [*(run / "checkpoints").iterdir()]
    assert rlcli.show_sweep(path)["counts"] == {"running": 3}  # two of them together
