"""`--sampler pbt`: a population is one job, and its record gives recipes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from folders import read_rows
from sweeps import use_fake_engines

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.runs.population_rounds import (
    Round,
    RoundEntry,
    Stage,
    read_settings,
    write_rounds,
)
from rlcli.studies.search.pbt import schedule_settings

pytest.importorskip("optuna")
LAKE = """
environment: {name: FrozenLakeNonSlippery-v0, num_envs: 2}
network: table
policy: {name: epsilon_greedy, epsilon: 0.5}
updater: {name: q_learning, loss: mse}
optimizer: {name: sgd, learning_rate: 0.5}
train: {steps: 3_000, evaluate: {every: 300, episodes: 2}, checkpoint: {every: 500}}
"""
SPACE = """\
optimizer.learning_rate: {log_uniform: [0.01, 1.0]}
tracer.gamma: {uniform: [0.8, 0.99]}
"""
RATE, GAMMA = "optimizer.learning_rate", "tracer.gamma"


@pytest.fixture(autouse=True)
def _files(folder):
    (folder / "lake.yaml").write_text(LAKE)
    (folder / "space.yaml").write_text(SPACE)


@pytest.fixture
def fake(monkeypatch):
    """Sweeps whose runs are written by hand; returns the engines."""

    def curve(options, seed, step):
        """Later members are better; a schedule is better than all."""
        return step + 100 * options[GAMMA] if isinstance(options[GAMMA], float) else 1e6

    return use_fake_engines(monkeypatch, curve)


def start(**keywords):
    options = {"space": "space.yaml", "sampler": "pbt", "trials": 4, "seeds": 2}
    return rlcli.sweep("lake.yaml", **options | {"confirm": 1} | keywords)


def write_record(path: Path) -> None:
    """The best member has copied member 0 at step 300, and that member 1 at 900."""
    best = rlcli.show_sweep(path)["best"]["trial"]
    others = [n for n in range(4) if n != best]
    options = {RATE: 0.5, GAMMA: 0.9}

    def copies(who: int, which: int, numbers: dict) -> dict:
        none = {f"{n:04d}": RoundEntry(0.0, None, options) for n in range(4)}
        return none | {f"{who:04d}": RoundEntry(0.0, f"{which:04d}", numbers)}

    first = copies(others[0], others[1], {RATE: 0.25, GAMMA: 0.8})
    second = copies(best, others[0], {RATE: 0.3, GAMMA: 0.8})
    write_rounds(path / "trials", [Round(1, 300, first), Round(3, 900, second)])


@pytest.mark.slow
def test_a_population_is_one_job_of_one_process(fake):
    path = start(name="first", ready=2)
    (engine,) = fake
    assert engine.room == 1
    (trials, confirmed) = engine.started
    assert trials == ("trials/0000 to trials/0003", "train")
    assert confirmed[0].startswith("confirm")
    settings = read_settings(path / "trials")
    assert settings.members == ("0000", "0001", "0002", "0003")
    assert (settings.seed, settings.ready) == (0, 2)
    assert [(each.key, each.places) for each in settings.options] == [
        (RATE, (RATE,)),
        (GAMMA, (GAMMA,)),
    ]
    assert [each.is_log for each in settings.options] == [True, False]
    data = rlcli.show_sweep(path)
    assert data["counts"] == {"complete": 4}
    assert (data["slices"], data["importance"]) == ([], {})
    assert start(name="small", trials=None).name == "small"
    assert len(rlcli.show_sweep("runs/sweeps/lake/small")["trials"]) == 20


def test_the_winner_is_a_recipe_with_schedules(fake, capsys):
    path = start(name="first", confirm=0)
    write_record(path)
    data = rlcli.show_sweep(path)
    best = data["best"]
    lineage = best["lineage"]
    assert [stage["step"] for stage in lineage] == [0, 300, 900]
    assert lineage[-1]["trial"] == best["trial"]
    assert best["options"] == lineage[-1]["options"] == {RATE: 0.3, GAMMA: 0.8}
    rlcli.export_sweep(path, "best.yaml")
    recipe = load_recipe("best.yaml")
    rate = recipe.optimizers["optimizer"].options["learning_rate"]
    first = lineage[0]["options"][RATE]
    # The update after a round sees its step.
    assert rate.milestones == ((0, first), (300, 0.25), (900, 0.3))
    assert recipe.tracer.options["gamma"].milestones[1:] == ((300, 0.8), (900, 0.8))
    assert (recipe.train.seed, recipe.train.seeds) == (0, 2)
    assert main(["sweep", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"lineage of trial {best['trial']}" in out and "importance" not in out
    # It is the winner with its last numbers, or confirmed with the same schedules.
    rlcli.sweep(path, resume=True)
    assert rlcli.show_sweep(path)["winner"]["options"] == {RATE: 0.3, GAMMA: 0.8}
    fake.clear()
    rlcli.sweep(path, resume=True, confirm=1)
    ((key, _),) = fake[0].started
    assert key == f"confirm/{best['trial']:04d}"
    winner = rlcli.show_sweep(path)["winner"]
    assert winner["value"] == 1e6
    assert winner["options"] == {RATE: 0.3, GAMMA: 0.8}


def test_a_member_that_has_copied_nobody_has_numbers():
    stages = [Stage(0, "a", {"x": 0.5}), Stage(100, "b", {"x": 0.25})]
    assert schedule_settings(stages[:1], 8) == ("x=0.5",)
    assert schedule_settings(stages, 8) == ("x={steps: [[0, 0.5], [100, 0.25]]}",)


def test_a_policy_has_the_numbers_of_a_round_from_the_next_action_on():
    key = "policy.epsilon"
    stages = [Stage(0, "a", {key: 0.5}), Stage(100, "b", {key: 0.25})]
    (setting,) = schedule_settings(stages, 8)
    assert setting == f"{key}={{steps: [[0, 0.5], [108, 0.25]]}}"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"space": {"network": {"choice": ["table"]}}}, "has `choice`"),
        ({"space": {"updater.critics": {"int": [1, 2]}}}, "has `int`"),
        (
            {
                "space": {"environment.gravity": {"uniform": [8, 12]}},
                "set": ["environment=CartPole-v1"],
            },
            "`environment.gravity` cannot change .* not a number of the program",
        ),
        ({"pruner": "asha"}, "`--sampler pbt` has no `pruner` `asha`"),
        ({"objective": "auc"}, "`--sampler pbt` has no `objective` `auc`"),
        ({"together": 2}, "`--sampler pbt` has no `together`"),
        ({"trials": 1}, "a population needs at least two trials"),
        ({"ready": 0}, "`ready` cannot be 0"),
        ({"ready": 2, "sampler": "random"}, "`ready` is an option of"),
        ({"set": ["train.stop={return: 1}"]}, "cannot have `train.stop`"),
    ],
)
def test_what_a_population_cannot_be_is_refused(keywords, message, folder, fake):
    with pytest.raises(RlcliError, match=message):
        start(**keywords)
    assert not (folder / "runs").exists()


def test_a_number_of_a_schedule_is_refused(fake):
    space = {"policy.epsilon.from": {"uniform": [0.2, 0.9]}}
    sets = ["policy.epsilon={from: 0.5, to: 0.1, over: 100}"]
    with pytest.raises(
        RlcliError, match=r"`policy.epsilon.from` cannot change"
    ) as error:
        start(space=space, set=sets)
    assert "may follow a schedule" in error.value.hint


def test_a_population_keeps_its_size(fake):
    path = start(confirm=0)
    with pytest.raises(RlcliError, match="with `trials` `4`, not `5`"):
        rlcli.sweep(path, resume=True, trials=5)


COMMAND = [sys.executable, "-m", "rlcli", "sweep", "lake.yaml", "--space", "space.yaml"]
COMMAND += ["--trials", "4", "--seeds", "2", "--sampler", "pbt", "--confirm", "1"]


@pytest.mark.slow
def test_a_population_whose_processes_are_killed_ends_as_an_undisturbed_one(folder):
    # Some of the first learning rates are too small to learn anything.
    (folder / "space.yaml").write_text(f"{RATE}: {{log_uniform: [1e-30, 1.0]}}\n")
    sets = ["--set", "train.steps=100_000", "--set", "train.evaluate.every=10_000"]
    sets += ["--set", "train.checkpoint.every=3_000"]
    command = [*COMMAND, *sets]
    subprocess.run([*command, "--name", "a"], check=True, capture_output=True)
    process = subprocess.Popen([*command, "--name", "b"], stderr=subprocess.PIPE)
    path, undisturbed = (folder / f"runs/sweeps/lake/{name}" for name in "ba")
    deadline = time.monotonic() + 120
    while not (path / "trials/rounds.jsonl").is_file():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    os.kill(int((path / "trials/0000/.lock").read_text()), signal.SIGKILL)
    time.sleep(0.2)
    process.kill()
    process.communicate()
    resume = [sys.executable, "-m", "rlcli", "sweep", str(path), "--resume"]
    subprocess.run(resume, check=True, capture_output=True)
    record = "trials/rounds.jsonl"
    assert (path / record).read_bytes() == (undisturbed / record).read_bytes()
    assert len((path / record).read_text().splitlines()) == 9
    for number in range(4):
        run, other = (each / f"trials/{number:04d}" for each in (path, undisturbed))
        assert read_rows(run) == read_rows(other)
    ours, theirs = (rlcli.show_sweep(each) for each in (path, undisturbed))
    for name in ("counts", "winner", "confirmed"):
        assert ours[name] == theirs[name]
    # The recipe of a member that has copied another one makes its history again.
    copied = next(e["trial"] for e in ours["trials"] if len(e["lineage"]) > 1)
    lineage = ours["trials"][copied]["lineage"]
    rlcli.export_sweep(path, "member.yaml", trial=copied)
    again = rlcli.train("member.yaml", run="again", quiet=True)

    def returns(run):
        return [
            (row["T"], row["seed"], row["evaluation"]["mean"])
            for row in read_rows(run)
            if "evaluation" in row and row["T"] > lineage[-1]["step"]
        ]

    assert returns(again) == returns(path / f"trials/{copied:04d}")
