"""Frozen parts of networks do not learn: not by gradients, decay or statistics."""

import numpy as np
import pytest
from wording import mentions

from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.loop import make_loop
from rlcli.recipe import load_recipe, resolve
from rlcli.runs import checkpoint

LAYERS = {"name": "mlp", "layers": [6, 5]}
DQN = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": LAYERS,
    "replay": {"name": "uniform", "capacity": 64, "batch_size": 4},
    "updater": {"name": "dqn", "target": {"every": 1}},
    "optimizer": {"name": "adamw", "learning_rate": 0.1, "weight_decay": 0.1},
    "train": {"steps": 1_000, "start": 0},
}
PPO = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": LAYERS,
    "updater": {"name": "ppo", "epochs": 1, "minibatches": 1},
    "train": {"steps": 1_000, "unroll": 4},
}


def learner_after(data, *iterations: int, sets=()):
    """The learner at the start and after some iterations, and the last metrics."""
    loop = make_loop(build(load_recipe(data, sets), (0,)))
    progress, states, metrics = loop.begin(), [], {}
    for count in (0, *iterations):
        if count:
            progress, log = loop.advance(progress, count)
            metrics = log.metrics
        states.append(checkpoint.flatten_tree(progress.agent.learner))
    loop.close(progress)
    return states, metrics


def changed(before, after, prefix="params/") -> set[str]:
    """The parameters that differ, by their paths below a prefix."""
    return {
        path.removeprefix(prefix)
        for path in before
        if path.startswith(prefix) and not np.array_equal(before[path], after[path])
    }


@pytest.mark.slow
def test_a_frozen_torso_keeps_every_bit_and_has_no_optimizer_state():
    (before, after), _ = learner_after(DQN, 8, sets=["freeze=[q/torso]"])
    assert changed(before, after) == {"q/linear_2/b", "q/linear_2/w"}
    moments = [p for p in before if p.startswith("optimizer/") and "linear" in p]
    assert moments
    assert all("linear_2" in path for path in moments)


@pytest.mark.slow
def test_a_frozen_group_is_not_moved_by_weight_decay():
    (before, after), metrics = learner_after(DQN, 8, sets=["freeze={q: true}"])
    assert changed(before, after) == set()
    assert metrics["gradient_norm"].max() == 0


@pytest.mark.slow
def test_the_norm_and_the_clipping_of_gradients_do_not_count_frozen_parts():
    """The head's gradient is what optax gives when nothing else is a parameter."""
    sets = ["optimizer={name: sgd, learning_rate: 1.0, clip_norm: 0.01}"]
    (before, after), metrics = learner_after(
        PPO, 1, sets=[*sets, "freeze=[policy/torso, value/torso]"]
    )
    moved = [
        after[path] - before[path] for path in before if path.startswith("params/")
    ]
    norm = np.sqrt(sum(np.square(leaf).sum() for leaf in moved))
    assert metrics["gradient_norm"].max() > 0.01
    np.testing.assert_allclose(norm, 0.01, rtol=1e-4)
    assert {path.split("/")[1] for path in changed(before, after)} == {"linear_2"}


@pytest.mark.slow
def test_a_part_that_is_frozen_until_a_step_begins_to_learn_then():
    """An iteration has 8 steps: those at 0 and 8 are before step 16."""
    sets = ["freeze={policy/torso: 16}"]
    (start, early, late), _ = learner_after(PPO, 2, 1, sets=sets)
    torso = {
        f"policy/{layer}/{name}" for layer in ("linear", "linear_1") for name in "wb"
    }
    assert not changed(start, early) & torso
    assert changed(early, late) >= torso
    counts = {path: leaf for path, leaf in late.items() if path.endswith("/count")}
    assert sorted(int(leaf[0]) for leaf in counts.values()) == [1, 3]


@pytest.mark.slow
def test_a_shared_torso_is_frozen_for_all_its_functions():
    data = {**PPO, "network": {"shared": LAYERS, "policy": {}, "value": {}}}
    (before, after), _ = learner_after(data, 2, sets=["freeze=[shared]"])
    assert {path.split("/")[0] for path in changed(before, after)} == {
        "policy",
        "value",
    }


@pytest.mark.slow
def test_the_statistics_of_a_frozen_torso_stay():
    data = resolve(load_recipe("crossq_pendulum", ["train.start=0"]))
    sets = ["freeze=[critic/torso]", "replay.capacity=2000"]
    (before, after), _ = learner_after(data, 4, sets=sets)
    groups = {path.split("/")[0] for path in changed(before, after)}
    assert groups == {"critic", "policy", "policy.statistics", "temperature"}
    heads = {path for path in changed(before, after) if path.startswith("critic/")}
    assert heads == {"critic/linear_2/b", "critic/linear_2/w"}


@pytest.mark.parametrize(
    ("freeze", "words"),
    [
        ("[polcy]", ["polcy", "did you mean `policy`"]),
        ("[policy/head]", ["policy/head", "policy/torso"]),
        ("{policy: 0}", ["freeze", "0"]),
        ("{policy: false}", ["freeze", "false"]),
        ("policy", ["list", "mapping", "policy"]),
    ],
)
def test_what_cannot_be_frozen_is_one_error(freeze, words):
    with pytest.raises(RlcliError) as error:
        build(load_recipe(PPO, [f"freeze={freeze}"]))
    assert all(mentions(str(error.value), word) for word in words), error.value
