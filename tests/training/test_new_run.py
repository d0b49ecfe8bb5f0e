"""Training: what a run leaves behind, how it ends, and going on with it."""

import json
import re
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
from folders import snapshot
from tiers import quick_first

import rlcli
from rlcli.assembly import build
from rlcli.cli.training_outcome import report_training
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe, resolve
from rlcli.runs.run_folder import TIME, Run
from rlcli.training.budgets import smoke_recipe
from rlcli.training.experiment.experiment import Experiment

CLOCKS = {"dt", "steps_per_second", "updates_per_second", "time"}
DATA = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": {"name": "mlp", "layers": [8]},
    "replay": {"name": "uniform", "capacity": 200, "batch_size": 4},
    "updater": "q_learning",
    "train": {
        "steps": 1_500,
        "start": 20,
        "log": {"every": 100},
        "evaluate": {"every": 600, "episodes": 2},
        "checkpoint": {"every": 400, "keep": 2},
    },
}
HOST = {**DATA, "environment": {"name": "gymnasium/CartPole-v1", "num_envs": 2}}


class FinishedRuns(dict):
    """Runs by name: `native`, with two `seeds`, or on the `host`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __missing__(self, name: str) -> Path:
        data, seeds = HOST if name == "host" else DATA, 1 + (name == "seeds")
        self[name] = rlcli.train(data, run=self._folder / name, seeds=seeds, quiet=True)
        return self[name]


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory) -> dict[str, Path]:
    """Runs from their beginning to their end, trained when a test needs them."""
    return FinishedRuns(tmp_path_factory.mktemp("finished"))


def info(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())


def rows(run: Path) -> list[dict]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [{k: v for k, v in row.items() if k not in CLOCKS} for row in found]


def files(run: Path) -> dict[str, bytes]:
    """The last checkpoint and the policies."""
    last = json.loads((run / "checkpoints.json").read_text())["latest"]
    found = [run / "policy.pkl.lz4", run / "best.pkl.lz4", run / "checkpoints" / last]
    return {str(path.relative_to(run)): path.read_bytes() for path in found}


def left_at(step: int, run: Path, data=DATA, **keywords) -> Path:
    """A run that its caller has left at the first chunk at or past a step."""
    chunks = rlcli.chunks(data, run=run, quiet=True, **keywords)
    for chunk in chunks:
        if chunk.step >= step:
            chunks.close()
            break
    return run


@pytest.mark.slow
def test_a_run_leaves_all_that_it_takes_to_go_on_and_to_look_at_it(finished_runs):
    run = finished_runs["native"]
    names = {path.name for path in run.iterdir() if not path.name.startswith(".")}
    assert names == {
        *("recipe.yaml", "resolved.yaml", "run.json", "metrics.jsonl", "log.txt"),
        *("checkpoints", "policy.pkl.lz4", "best.pkl.lz4", "checkpoints.json"),
    }
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert kept == ["000001200.pkl.lz4", "000001500.pkl.lz4"]  # the newest two
    assert load_recipe(run / "resolved.yaml") == load_recipe(DATA)
    facts = info(run)
    assert (facts["status"], facts["seeds"]) == ("finished", [0])
    assert {"versions", "command", "layout", "created", "ended"} <= set(facts)


@pytest.mark.slow
def test_the_recipe_lies_in_the_run_as_it_was_written(tmp_path):
    text = "# mine\n" + yaml.safe_dump(DATA)
    (tmp_path / "mine.yaml").write_text(text)
    run = rlcli.train(tmp_path / "mine.yaml", runs=tmp_path, smoke=True, quiet=True)
    assert (run / "recipe.yaml").read_text() == text
    assert run.parent == tmp_path / "mine"
    assert info(run)["smoke"] is True


@pytest.mark.slow
def test_a_run_records_its_name_its_tags_and_its_changes(tmp_path):
    sets = ["optimizer={name: adam, learning_rate: 5e-4}", "train.steps=9_000"]
    run = rlcli.train(
        "dqn_cartpole",
        set=sets,
        seeds=2,
        runs=tmp_path,
        name="base",
        tag=["a", "b", "a"],
        smoke=True,
        quiet=True,
    )
    assert run == tmp_path / "dqn_cartpole" / "base"
    facts = info(run)
    assert (facts["name"], facts["tags"]) == ("base", ["a", "b"])
    assert facts["total_steps"] < 9_000  # `smoke` is no change of the recipe
    shipped, ours = (
        resolve(load_recipe("dqn_cartpole", each)) for each in ((), (*sets,))
    )
    changes = facts["changes"]
    assert changes["train.steps"] == [shipped["train"]["steps"], 9_000]
    assert changes["train.seeds"] == [1, 2]
    assert changes["optimizer.learning_rate"] == [
        shipped["optimizer"]["learning_rate"],
        ours["optimizer"]["learning_rate"],
    ]
    assert {key.split(".")[0] for key in changes} == {"optimizer", "train"}


@pytest.mark.slow
def test_a_folder_is_named_after_the_overrides_of_its_run(tmp_path):
    chunks = rlcli.chunks(DATA, set=["train.log.every=50"], seed=3, runs=tmp_path)
    folder = next(chunks).run
    chunks.close()
    assert re.fullmatch(TIME.pattern + "_log.every=50,seed=3", folder.name)
    assert info(folder)["changes"] == {
        "train.log.every": [100, 50],
        "train.seed": [0, 3],
    }


@pytest.mark.parametrize("wrong", [{"name": "a/b"}, {"tag": [""]}])
def test_a_name_that_cannot_be_a_folders_is_refused_before_training(wrong, tmp_path):
    with pytest.raises(RlcliError, match="of a run"):
        rlcli.train(DATA, runs=tmp_path / "runs", **wrong)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_rows_come_at_every_log_point_for_every_seed(finished_runs):
    logged = [row for row in rows(finished_runs["seeds"]) if "evaluation" not in row]
    steps = range(100, 1_501, 100)
    assert [(row["T"], row["seed"]) for row in logged] == [
        (step, seed) for step in steps for seed in (0, 1)
    ]
    evaluated = [row for row in rows(finished_runs["seeds"]) if "evaluation" in row]
    assert [row["T"] for row in evaluated] == [600, 600, 1_200, 1_200]
    assert all(row["evaluation"]["episodes"] == 2 for row in evaluated)


@pytest.mark.slow
def test_two_runs_of_a_recipe_are_the_same_to_the_byte(finished_runs, tmp_path):
    again = rlcli.train(DATA, run=tmp_path / "run", quiet=True)
    assert files(again) == files(finished_runs["native"])
    assert rows(again) == rows(finished_runs["native"])


@pytest.mark.slow
def test_watching_a_run_changes_nothing_of_what_is_learned(finished_runs, tmp_path):
    sets = ["train.log.every=10", "train.evaluate.every=100", "train.checkpoint=null"]
    often = rlcli.train(DATA, set=sets, run=tmp_path / "run", quiet=True)
    ours, theirs = (
        rlcli.runs.checkpoint.read(run / "checkpoints" / "000001500.pkl.lz4")[
            "progress"
        ]
        for run in (often, finished_runs["native"])
    )
    assert set(ours) == set(theirs)
    assert all(np.array_equal(ours[name], leaf) for name, leaf in theirs.items())


@pytest.mark.parametrize(
    ("kind", "data", "seeds", "step"),
    [
        ("native", DATA, 1, 500),
        pytest.param("native", DATA, 1, 1_300, marks=pytest.mark.slow),
        pytest.param("seeds", DATA, 2, 700, marks=pytest.mark.slow),
        pytest.param("host", HOST, 1, 700, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    kind, data, seeds, step, finished_runs, tmp_path
):
    run = left_at(step, tmp_path / "run", data, seeds=seeds)
    assert info(run)["status"] == "stopped"
    assert rlcli.resume(run, quiet=True) == run
    assert info(run)["status"] == "finished"
    assert files(run) == files(finished_runs[kind])
    assert rows(run) == rows(finished_runs[kind])


@pytest.mark.slow
def test_several_host_environments_of_two_seeds_resume_exactly(tmp_path):
    sets = ["train.steps=600", "train.checkpoint.every=200"]
    whole = rlcli.train(HOST, set=sets, seeds=2, run=tmp_path / "whole", quiet=True)
    run = left_at(250, tmp_path / "run", HOST, seeds=2, set=sets)
    rlcli.resume(run, quiet=True)
    assert files(run) == files(whole)
    assert rows(run) == rows(whole)


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_starts_again(finished_runs, tmp_path):
    run = shutil.copytree(finished_runs["native"], tmp_path / "run")
    shutil.rmtree(run / "checkpoints")
    for name in ("checkpoints.json", "policy.pkl.lz4", "best.pkl.lz4"):
        (run / name).unlink()
    (run / "run.json").write_text(json.dumps(info(run) | {"status": "running"}))
    rlcli.resume(run, quiet=True)
    assert files(run) == files(finished_runs["native"])
    assert rows(run) == rows(finished_runs["native"])


def test_a_finished_run_says_so_and_stays_as_it_is(finished_runs, tmp_path, capsys):
    run = shutil.copytree(finished_runs["native"], tmp_path / "run")
    before = snapshot(run)
    rlcli.resume(run)
    assert f"`{run}` is finished: 1,500 steps" in capsys.readouterr().err
    assert report_training(run, quiet=True) == 0
    rlcli.resume(run, set=["train.log.every=7", "train.stop.return=3"], quiet=True)
    with pytest.raises(RlcliError, match="has already made 1,500 steps"):
        rlcli.resume(run, set=["train.steps=500"], quiet=True)
    assert snapshot(run) == before


@pytest.mark.slow
def test_a_resume_that_is_over_before_its_first_step_writes_nothing(tmp_path):
    run = left_at(500, tmp_path / "run")
    (run / ".run.json.1.tmp").write_text("of a killed process")
    before = snapshot(run)
    with pytest.raises(RlcliError, match="`--max-time` was reached") as caught:
        rlcli.resume(run, set=["train.steps=9_000"], max_time=1e-6, quiet=True)
    assert caught.value.code == 75
    assert snapshot(run) == before


@pytest.mark.slow
def test_a_resume_that_is_interrupted_before_its_first_step_writes_nothing(
    tmp_path, monkeypatch
):
    run = left_at(500, tmp_path / "run")
    before = snapshot(run)
    restore = Experiment.restore

    def restore_slowly(*arguments):
        signal.raise_signal(signal.SIGTERM)
        return restore(*arguments)

    monkeypatch.setattr(Experiment, "restore", restore_slowly)
    with pytest.raises(SystemExit) as caught:
        rlcli.resume(run, quiet=True)
    assert caught.value.code == 143
    assert "it was stopped before its first step" in caught.value.__notes__[0]
    assert snapshot(run) == before


@pytest.mark.slow
def test_an_extended_run_equals_one_that_was_longer_from_the_start(
    finished_runs, tmp_path
):
    run = shutil.copytree(finished_runs["native"], tmp_path / "run")
    rlcli.resume(run, set=["train.steps=2_300"], quiet=True)
    assert info(run)["changes"] == {"train.steps": [1_500, 2_300]}
    sets = ["train.steps=2_300"]
    longer = rlcli.train(DATA, set=sets, run=tmp_path / "longer", quiet=True)
    assert files(run) == files(longer)
    assert rows(run) == rows(longer)


@pytest.mark.parametrize(
    "change",
    [
        "optimizer.learning_rate=0.5",
        "train.seeds=3",
        "train.start=30",
        "environment.num_envs=4",
        "extra={mine: 1}",
    ],
)
def test_a_run_is_resumed_with_its_own_recipe_only(change, finished_runs, tmp_path):
    run = shutil.copytree(finished_runs["native"], tmp_path / "run")
    before = snapshot(run)
    with pytest.raises(RlcliError) as caught:
        rlcli.resume(run, set=[change], quiet=True)
    begins = "a run cannot be resumed with another recipe: `"
    assert caught.value.message.startswith(begins + change.partition("=")[0])
    for name in ("steps", "stop", "log", "evaluate", "checkpoint"):
        assert f"`train.{name}`" in caught.value.hint
    assert snapshot(run) == before


@pytest.mark.slow
def test_periods_may_change_from_one_resume_to_the_next(finished_runs, tmp_path):
    run = left_at(500, tmp_path / "run")
    sets = ["train.log.every=50", "train.evaluate=null", "train.checkpoint.keep=1"]
    rlcli.resume(run, set=sets, quiet=True)
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert kept == ["000001500.pkl.lz4"]
    ours, theirs = (
        rlcli.runs.checkpoint.read(each / "checkpoints" / kept[0])["progress"]
        for each in (run, finished_runs["native"])
    )
    assert all(np.array_equal(ours[name], leaf) for name, leaf in theirs.items())


@pytest.mark.slow
def test_chunks_hand_on_what_one_might_want_to_look_at(tmp_path):
    steps, seen = [], []
    chunks = rlcli.chunks(DATA, seeds=2, run=tmp_path / "run", quiet=True)
    for chunk in chunks:
        steps.append(chunk.step)
        seen += chunk.rows
        assert chunk.run == tmp_path / "run"
        if len(steps) > 1:
            assert chunk.acting["q"]["linear"]["w"].shape == (2, 4, 8)
        else:
            early = chunk
    with pytest.raises(ValueError, match="before the next chunk"):
        _ = early.acting
    assert steps == sorted(steps)
    assert steps[-1] == 1_500
    logged = range(100, 1_501, 100)
    assert [row["T"] for row in seen] == [step for step in logged for _ in range(2)]


@pytest.mark.slow
def test_what_chunks_hand_out_may_be_changed(tmp_path):
    data = DATA | {"train": {"steps": 300, "start": 50, "log": {"every": 100}}}
    kept = []
    for chunk in rlcli.chunks(data, run=tmp_path / "run", quiet=True):
        for leaf in jax.tree.leaves(chunk.acting):
            leaf[...] = len(kept)
        kept.append(chunk)
        for row in chunk.rows:
            row.clear()
    for number, chunk in enumerate(kept):  # nor does a later chunk overwrite them
        assert all(np.all(leaf == number) for leaf in jax.tree.leaves(chunk.acting))
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["T"] for row in rows] == [100, 200, 300]
    whole = rlcli.train(data, run=tmp_path / "whole", quiet=True)
    ours, theirs = (
        jax.tree.leaves(rlcli.load(run).params) for run in (tmp_path / "run", whole)
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_run_ends_when_its_time_is_over_after_a_checkpoint(tmp_path):
    run = rlcli.train(DATA, run=tmp_path / "run", max_time=1e-6, quiet=True)
    assert info(run)["status"] == "out_of_time"
    assert (run / "checkpoints" / "000000000.pkl.lz4").is_file()
    assert report_training(run, quiet=True) == 75


@pytest.mark.slow
def test_a_run_stops_at_its_goal_and_resuming_it_says_so(tmp_path, capsys):
    sets = ["train.stop.return=1", "train.evaluate.every=300"]
    run = rlcli.train(DATA, set=sets, run=tmp_path / "run", quiet=True)
    assert info(run)["status"] == "stopped"
    assert "`train.stop`" in info(run)["reason"]
    assert set(files(run)) > {"checkpoints/000000300.pkl.lz4"}
    before = snapshot(run)
    rlcli.resume(run)
    assert f"`{run}` is finished" in capsys.readouterr().err
    assert snapshot(run) == before
    rlcli.resume(run, set=["train.stop.return=501"], quiet=True)
    assert info(run)["status"] == "finished"


@pytest.mark.slow
def test_a_run_that_was_killed_at_its_goal_stops_there(tmp_path):
    """For example while its environments close, before `run.json` says so."""
    sets = ["train.stop.return=1", "train.evaluate.every=300"]
    run = rlcli.train(DATA, set=sets, run=tmp_path / "run", quiet=True)
    ended, rows = info(run), (run / "metrics.jsonl").read_bytes()
    Run(run).write_info(status="running", reason="", ended=None)
    rlcli.resume(run, quiet=True)
    assert (run / "metrics.jsonl").read_bytes() == rows
    assert all(info(run)[key] == ended[key] for key in ("status", "reason"))


@pytest.mark.slow
def test_quiet_means_quiet(tmp_path, capsys):
    rlcli.train(DATA, run=tmp_path / "run", smoke=True, quiet=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_smoke_runs_every_part_of_a_long_run_within_seconds(tmp_path):
    sets = ["train.steps=10_000_000", "train.start=100_000", "train.log.every=100_000"]
    run = rlcli.train(DATA, set=sets, run=tmp_path / "run", smoke=True, quiet=True)
    found = rows(run)
    assert {"loss", "q"} <= set(found[-1]) | set(found[-2])
    assert any("evaluation" in row for row in found)
    assert (run / "best.pkl.lz4").is_file()


def test_smoke_waits_for_the_first_update_of_long_sequences():
    """200 steps of each environment are more than the budget of other recipes."""
    replay = "replay={name: sequences, length: 200, capacity: 5_000, batch_size: 4}"
    sets = [replay, "environment.num_envs=4", "train.start=1_000"]
    recipe = smoke_recipe(load_recipe(DATA, sets))
    setup = build(recipe)
    assert (
        0
        < setup.agent.count_updates(recipe.train.steps // setup.steps_per_iteration)
        < 1_000
    )


def test_a_folder_that_holds_a_run_is_refused_for_another(finished_runs):
    before = files(finished_runs["native"])
    with pytest.raises(RlcliError, match="already contains a run"):
        rlcli.train(DATA, run=finished_runs["native"], quiet=True)
    assert files(finished_runs["native"]) == before


@pytest.mark.slow
def test_a_seed_and_their_number_may_be_given_beside_the_recipe(tmp_path):
    run = rlcli.train(
        DATA, run=tmp_path / "run", seed=6, seeds=2, smoke=True, quiet=True
    )
    assert info(run)["seeds"] == [6, 7]
    assert load_recipe(run / "resolved.yaml").train.seed == 6


@pytest.mark.parametrize(
    "devices", quick_first([{"devices": 1}, {}]), ids=["one", "two"]
)
def test_a_run_without_a_seed_left_fails_and_keeps_its_last_good_checkpoint(
    devices, tmp_path, capsys
):
    absurd = {
        **DATA,
        "network": "linear",
        "updater": {"name": "q_learning", "loss": "mse"},
        "optimizer": {"name": "sgd", "learning_rate": 1e30},
        "train": {
            **{"steps": 1_500, "start": 400},
            "checkpoint": {"every": 300},
            **devices,
        },
    }
    run = rlcli.train(absurd, run=tmp_path / "run", seeds=2, quiet=True)
    facts = info(run)
    assert facts["status"] == "failed"
    for seed in (0, 1):
        assert f"seed {seed}: " in facts["reason"]
    assert "is not finite at update " in facts["reason"]
    latest = Run(run).latest_checkpoint()
    assert latest.name == "000000300.pkl.lz4"
    saved = rlcli.runs.checkpoint.read(latest)["progress"]
    assert all(
        np.all(np.isfinite(leaf)) for leaf in saved.values() if leaf.dtype.kind == "f"
    )
    assert report_training(run, quiet=True) == 1
    assert "all seeds are frozen: seed 0: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_in_training_is_locked(tmp_path):
    run = tmp_path / "run"
    chunks = rlcli.chunks(DATA, run=run, quiet=True)
    next(chunks)
    with pytest.raises(RlcliError, match="is already training into"):
        rlcli.resume(run, quiet=True)
    chunks.close()
    rlcli.resume(run, quiet=True)
    assert info(run)["status"] == "finished"
