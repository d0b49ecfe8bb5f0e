"""Verify resume: runs that are stopped and resumed, and hidden state that is found."""

import json

import pytest

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.runs.run_folder import Run
from rlcli.training import budgets
from rlcli.training.checks import verify_resume as module

DATA = {
    "environment": "probe-constant-reward",
    "network": "linear",
    "updater": "q_learning",
    "replay": None,
    "train": {"unroll": 16},
}
HIDDEN = """
import gymnasium
import numpy as np

class Counter(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    episodes = 0  # of this process

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        Counter.episodes += 1
        self.length = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.length += 1
        obs = np.full(1, self.length, np.float32)
        return obs, float(Counter.episodes), self.length == 5, False, {}
"""
RECIPE = """
environment: hidden:Counter
network: linear
updater: q_learning
replay: null
train: {unroll: 16}
"""
RESULT = {
    "recipe": "mine",
    "step": 512,
    "stops": [{"step": 32, "place": "after a few updates"}],
    "inexact": [],
    "metrics": None,
    "state": [],
    "after": None,
    "identical": True,
    "hint": "",
}


@pytest.fixture
def in_this_process(monkeypatch):
    """Runs the tasks in this process, which is faster than a process for each."""
    monkeypatch.setattr(module, "run_in_process", module._perform)


@pytest.mark.slow
def test_a_run_is_stopped_at_several_points_and_resumes_exactly(in_this_process):
    result = rlcli.verify_resume(DATA, steps=128, seeds=2, quiet=True)
    places = {stop["place"]: stop["step"] for stop in result["stops"]}
    assert places["after an evaluation"] == 64
    assert len(places) >= 3
    assert result["step"] == 128
    assert result["identical"], result


@pytest.mark.slow
def test_state_that_an_environment_hides_in_python_is_found(folder, capsys):
    """The counter is one of the class: only a process of its own begins anew."""
    (folder / "hidden.py").write_text(HIDDEN)
    (folder / "mine.yaml").write_text(RECIPE)
    command = ["verify-resume", "mine.yaml", "--steps", "128", "--quiet", "--json"]
    assert main(command) == 1
    result = json.loads(capsys.readouterr().out)
    first, stop = result["metrics"], result["stops"][0]
    assert first["step"] > stop["step"]
    assert result["after"] == stop
    assert result["state"]
    assert (result["identical"], result["inexact"]) == (False, [])
    assert result["hint"] == module.HIDDEN_STATE
    names = {path.name for path in folder.iterdir()} - {"__pycache__"}
    assert names == {"hidden.py", "mine.yaml"}
    with pytest.raises(RlcliError, match="3 steps are too few") as raised:
        rlcli.verify_resume("mine.yaml", steps=3, quiet=True)
    assert raised.value.hint == "`--steps 64` or more"


def test_the_budget_is_small_and_has_updates_before_and_after_each_stop():
    recipe = load_recipe("dqn_cartpole", ["train.trackers=[tensorboard]"])
    short = budgets.short_recipe(recipe, None).train
    size = short.unroll * recipe.num_envs
    updates = (short.steps - short.start) / size * short.updates
    assert short.steps <= 2048
    assert updates >= budgets.MIN_UPDATES
    assert (short.trackers, short.stop, short.log.every) == ((), None, size)
    assert budgets.short_recipe(recipe, 5_000).train.steps == 5_000


def row(step, updates=0, episodes=1, **fields):
    return {"T": step, "seed": 0, "updates": updates, "ep": episodes, **fields}


def test_stops_are_chosen_from_the_metrics():
    rows = [row(1), row(2), row(3, 1), row(4, 2), row(5, 3), row(6, 4)]
    rows += [{"T": 6, "seed": 0, "evaluation": {}}, {**row(1), "seed": 1}]
    rows += [row(7, 5, 2), row(8, 6, 2), row(9, 7, 2), row(10, 8, 3), row(12, 9, 4)]
    assert module.plan_stops(rows) == [
        {"step": 2, "place": "before the first update"},
        {"step": 5, "place": "after a few updates"},
        {"step": 6, "place": "after an evaluation"},
        {"step": 8, "place": "in the middle of an episode"},
        {"step": 9, "place": "after three quarters of the steps"},
    ]


@pytest.mark.parametrize(
    ("first", "inexact", "after", "hint"),
    [
        (None, "", None, ""),
        (None, "lost", None, module.NOT_RESTORED),
        (8, "", None, module.NOT_REPRODUCIBLE),
        (8, "lost", None, module.NOT_REPRODUCIBLE),
        (9, "lost", 8, module.NOT_RESTORED),
        (9, "", 8, module.HIDDEN_STATE),
    ],
)
def test_the_usual_cause_depends_on_where_the_runs_differ(
    first, inexact, after, hint, monkeypatch, tmp_path
):
    run = Run(tmp_path)
    run.write_info(resumes=[{"inexact": ""}, {"inexact": inexact}])
    metrics = {"step": first, "seed": 0, "field": "loss", "values": [1, 2]}
    monkeypatch.setattr(module, "first_difference", lambda *_: first and metrics)
    monkeypatch.setattr(module, "differing_arrays", lambda *_: [])
    stops = [{"step": 8, "place": ""}, {"step": 9, "place": ""}]
    result = module._compare(run, run, stops, 9)
    assert result["inexact"] == [inexact] * bool(inexact)
    assert result["identical"] is (first is None and not inexact)
    assert result["after"] == (after and stops[0])
    assert result["hint"] == hint


def test_a_run_that_fails_without_a_stop_is_an_error(tmp_path):
    run = Run(tmp_path)
    run.write_info(status="failed", reason="a loss is not finite", hint="lower it")
    with pytest.raises(RlcliError, match="failed: a loss is not finite"):
        module._end_of(run)


def test_the_command_says_whether_all_is_equal(monkeypatch, capsys):
    result = dict(RESULT)
    monkeypatch.setitem(vars(rlcli), "verify_resume", lambda *_, **__: result)
    assert main(["verify-resume", "mine"]) == 0
    assert capsys.readouterr().out == (
        "`mine` resumes exactly: metrics and state are identical after 1 stop, up to "
        "step 512\n"
    )
    metrics = {"step": 48, "seed": 3, "field": "loss", "values": [1, 2]}
    result |= {"metrics": metrics, "state": ["agent/w"], "after": RESULT["stops"][0]}
    result |= {"identical": False, "inexact": ["an episode"], "hint": "look"}
    assert main(["verify-resume", "mine"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "`mine` does not resume exactly",
        "  not restored: an episode",
        "  first in `loss` at step 48, seed 3: 1 → 2",
        "  in the state at step 512: agent/w",
        "  the last stop before: step 32, after a few updates",
        "",
        "hint: look",
    ]
    assert main(["verify-resume", "mine", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == result


def test_a_process_that_crashes_is_an_error(monkeypatch):
    end = type("End", (), {"returncode": -9, "stdout": "", "stderr": "a\nlast"})
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: end)
    with pytest.raises(RlcliError, match="ended with exit code -9: last"):
        module.run_in_process(module.Task("run", DATA, (), None))
