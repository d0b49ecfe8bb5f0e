"""What hooks log and change: in rows, after a resume, and in a reproduction."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiers import quick_first

import rlcli
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.runs.metrics import CLOCK_FIELDS, read_metrics
from rlcli.training import Chunk
from rlcli.training.experiment.hooks import Hooks

LAKE = {
    "environment": {"name": "FrozenLake-v1", "hole_reward": -1.0},
    "network": "table",
    "updater": {"name": "q_learning", "loss": "mse"},
    "optimizer": {"name": "sgd", "learning_rate": 0.25},
    "train": {
        "steps": 256,
        "seeds": 2,
        "log": {"every": 64},
        "checkpoint": {"every": 64},
        "evaluate": {"every": 128, "episodes": 2},
    },
}
ENV = """
import gymnasium
import numpy as np
class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self):
        self.speed, self.time = 0.25, 0
    def reset(self, *, seed=None, options=None):
        self.time = 0
        return 0, {}
    def step(self, action):
        self.time += 1
        return self.time % 4, self.speed, self.time == 4, False, {}
"""
HOOKS = """
import rlcli.training
CALLS = []
class Curriculum(rlcli.training.Hook):
    def __init__(self, *, step: float = 0.125):
        self.state = {"speed": 0.25, "evaluations": 0}
        self.step = step
    def on_log(self, chunk):
        CALLS.append(("log", chunk.step))
        self.state["speed"] += self.step
        chunk.set("environment.speed", self.state["speed"])
        chunk.log({"difficulty": self.state["speed"]})
    def on_evaluation(self, chunk):
        CALLS.append(("evaluation", chunk.step))
        self.state["evaluations"] += 1
        chunk.log({"evaluations": self.state["evaluations"]})
    def on_best(self, chunk):
        CALLS.append(("best", chunk.step))
    def on_episodes(self, chunk):
        CALLS.append(("episodes", chunk.step))
    def on_checkpoint(self, chunk):
        CALLS.append(("checkpoint", chunk.step))
"""


def rows_of(run):
    return [row for row in read_metrics(Path(run)) if "avg_G" in row]


def act(run, *, until=10**9, **keywords):
    """Halves the learning rate at step 128, and logs at every chunk."""
    chunks = rlcli.chunks(LAKE, run=run, quiet=True, **keywords)
    for chunk in chunks:
        chunk.log({"own": chunk.step, "of_seeds": [1, 2]})
        if chunk.step == 128:
            chunk.set("optimizer.learning_rate", 0.125)
            assert chunk.numbers["optimizer.learning_rate"] == 0.125
        if chunk.step >= until:
            chunks.close()
    return run


@pytest.fixture
def acted(folder):
    return act("acted")


def test_values_of_a_hook_are_in_the_rows_of_its_step(acted):
    for row in rows_of(acted):
        assert row["own"] == row["T"] and row["of_seeds"] == row["seed"] + 1
    assert "own" not in (acted and json.loads(Path(acted, "run.json").read_text()))


@pytest.mark.slow
def test_a_number_changes_training_from_the_next_step_on(acted):
    plain = rlcli.train(LAKE, run="plain", quiet=True)
    others = {"own", "of_seeds", "optimizer.learning_rate", *CLOCK_FIELDS}
    before, after = (
        [{k: v for k, v in row.items() if k not in others} for row in rows_of(name)]
        for name in (plain, acted)
    )
    assert before[:4] == after[:4]  # two rows of two seeds, up to step 128
    assert before[4:] != after[4:]
    shown = [row.get("optimizer.learning_rate") for row in rows_of(acted)]
    assert shown == [None] * 4 + [0.125] * 4


@pytest.mark.slow
def test_a_resumed_run_has_the_numbers_that_a_hook_has_set(acted, folder):
    stopped = act("stopped", until=192)
    rlcli.resume(stopped, quiet=True)
    name = "checkpoints/000000256.pkl.lz4"
    assert Path(stopped, name).read_bytes() == Path(acted, name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["optimizer.learning_rate", "environment.speed"])
def test_numbers_that_a_hook_has_set_are_also_in_the_checkpoint(walk, place):
    """A copy that was made while the run was training may have an older record."""
    recipe = {**LAKE, "environment": "own_walk:Walk"}

    def act(run, until):
        chunks = rlcli.chunks(recipe, run=run, quiet=True)
        for chunk in chunks:
            if chunk.step in (64, 128):
                chunk.set(place, 8 / chunk.step)
            if chunk.step == until:
                chunks.close()
        return Path(run)

    whole, half = act("whole", 256), act("half", 128)
    records = half / "hooks.jsonl"
    records.write_text(records.read_text().splitlines(keepends=True)[0])
    rlcli.resume(half, quiet=True, trust=True)
    for name in ("hooks.jsonl", "checkpoints/000000256.pkl.lz4"):
        assert (half / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_what_a_hook_did_after_the_last_checkpoint_is_forgotten(folder):
    run = act("stopped", until=64)
    path = Path(run, "hooks.jsonl")
    late = {"T": 128, "set": {"optimizer.learning_rate": 9.0}, "log": {}}
    path.write_text(path.read_text() + json.dumps(late) + '\n{"T": 128, "se')
    rlcli.resume(run, quiet=True)
    assert "9.0" not in path.read_text()
    assert all("optimizer.learning_rate" not in row for row in rows_of(run))


@pytest.mark.slow
def test_a_run_with_hooks_is_reproduced_to_the_bit(acted):
    result = rlcli.reproduce(acted, to="again", quiet=True)
    assert result["identical"] and rows_of("again")[-1]["own"] == 256


@pytest.mark.parametrize(
    ("place", "value", "message"),
    quick_first(
        [
            # Quick, because the check of types of slow tests refuses it.
            ("optimizer.learning_rate", "fast", "cannot be set to"),
            ("optimizer.learning_rat", 0.5, "cannot be set"),
            ("optimizer.learning_rate", float("nan"), "cannot be set to"),
            ("optimizer.learning_rate", 1e39, "cannot be set to"),
            ("environment.slippery", 0.5, "cannot be set"),
        ],
    ),
)
def test_what_cannot_be_set_is_an_error(folder, place, value, message):
    chunks = rlcli.chunks(LAKE, run="run", quiet=True)
    chunk = next(chunks)
    with pytest.raises(RlcliError, match=message):
        chunk.set(place, value)
    for values in ({"avg_G": 1}, {"x": "text"}, {"x": [1, 2, 3]}, {"": 1}):
        with pytest.raises(RlcliError, match="cannot log"):
            chunk.log(values)
    next(chunks)
    with pytest.raises(ValueError, match="before the next chunk"):
        chunk.log({"x": 1})
    chunks.close()


@pytest.mark.slow
def test_a_number_of_a_compiled_environment_is_set_if_the_recipe_lists_it(folder):
    """The reward of Pendulum-like tasks: here that of the goal, of FrozenLake."""
    recipe = {**LAKE, "environment": {"name": "FrozenLake-v1", "slippery": False}}
    recipe["train"] = {**LAKE["train"], "adjustable": ["environment.goal_reward"]}
    chunks = rlcli.chunks(recipe, run="run", quiet=True)
    assert next(chunks).numbers["environment.goal_reward"] == 1
    chunks.close()
    recipe["train"]["adjustable"] = ["environment.name"]
    with pytest.raises(RlcliError, match="no number that may follow a schedule"):
        next(rlcli.chunks(recipe, run="other", quiet=True))


@pytest.fixture
def walk(folder, fresh_imports):
    """A recipe with an environment on the host, and a hook with a state."""
    (folder / "own_walk.py").write_text(ENV)
    (folder / "own_hooks.py").write_text(HOOKS)
    (folder / "walk.yaml").write_text(
        "environment: own_walk:Walk\nnetwork: table\nupdater: q_learning\n"
        "train:\n  steps: 64\n  log: {every: 16}\n  checkpoint: {every: 16}\n"
        "  evaluate: {every: 32, episodes: 1}\n"
        "  hooks: [{name: 'own_hooks:Curriculum', step: 0.25}]\n"
    )
    return folder / "walk.yaml"


@pytest.mark.slow
def test_a_hook_of_a_recipe_acts_at_its_events(walk):
    run = rlcli.train(walk, run="run", quiet=True)
    import own_hooks

    assert own_hooks.CALLS[:3] == [("log", 16), ("episodes", 16), ("checkpoint", 16)]
    assert own_hooks.CALLS[3:8] == [
        *(("log", 32), ("episodes", 32), ("evaluation", 32), ("best", 32)),
        ("checkpoint", 32),
    ]
    rows = [row for row in read_metrics(run) if "avg_r" in row]
    assert [row["avg_r"] for row in rows] == [0.25, 0.5, 0.75, 1.0]
    assert [row["difficulty"] for row in rows] == [0.5, 0.75, 1.0, 1.25]
    assert [row.get("evaluations") for row in rows] == [None, 1, None, 2]


@pytest.mark.slow
def test_the_state_of_a_hook_is_resumed_and_reproduced(walk):
    whole = rlcli.train(walk, run="whole", quiet=True)
    stopped = rlcli.train(walk, run="half", set=["train.steps=32"], quiet=True)
    rlcli.resume(stopped, set=["train.steps=64"], quiet=True)
    rows = [[r for r in read_metrics(run) if "avg_r" in r] for run in (whole, stopped)]
    for one, other in zip(*rows, strict=True):
        assert one["difficulty"] == other["difficulty"]
        assert one["avg_r"] == other["avg_r"]
    assert rlcli.reproduce(whole, to="again", quiet=True)["identical"]


def test_a_hook_needs_trust_like_other_code(walk):
    with pytest.raises(RlcliError, match="would import code"):
        rlcli.train(walk, set=["environment=FrozenLake-v1"], trust=False, quiet=True)


def test_episodes_from_before_a_resume_are_no_event(walk):
    recipe = load_recipe(walk)
    before, after = Hooks(recipe), Hooks(recipe)
    import own_hooks

    def log(hooks, step, episodes):
        chunk = Chunk(Path(), step, [{"T": step, "ep": episodes}], [], None, None)
        hooks.act(chunk, is_best=False, is_checkpoint_due=False)

    for hook in (*before._hooks, *after._hooks):
        hook.on_log = lambda chunk: None  # it would set a number of the run
    own_hooks.CALLS.clear()
    log(before, 16, 3)
    after.restore(before.save(), Path("checkpoint"))
    log(after, 32, 3)
    log(after, 48, 4)
    assert own_hooks.CALLS == [("episodes", 16), ("episodes", 48)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speed": 1}, r"`0/speed`.* was float64\[\] and is int64\[\]"),
        ({"speed": 0.5, "more": [1.0]}, r"`0/more/0`.* was nothing and is float64\[\]"),
        ({"speed": np.zeros(2)}, r"was float64\[\] and is float64\[2\]"),
    ],
)
def test_a_state_that_no_resume_could_restore_is_refused_at_once(walk, change, message):
    hooks = Hooks(load_recipe(walk))
    (hook,) = hooks._hooks
    hook.state = {"speed": 0.25, "evaluations": 0}
    hook.on_log = lambda chunk: hook.state.update(change)
    chunk = Chunk(Path(), 16, [{"T": 16}], [], None, None)
    with pytest.raises(RlcliError, match=message):
        hooks.act(chunk, is_best=False, is_checkpoint_due=False)
