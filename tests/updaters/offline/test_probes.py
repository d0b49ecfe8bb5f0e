"""Offline updaters on data of probe environments, whose best actions are rare."""

import gymnasium
import jax
import numpy as np
import optax
import pytest
from data_sets import bandit_data, one_step_data, write_data

from rlcli import loop
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.offline.awac import awac

SLOW = pytest.mark.slow  # tests/updaters/offline/test_losses.py checks all losses
GOOD = 0.3  # share of the best action in the data


def greedy_action(environment, file, updater, updates, **more):
    """The action of the greedy policy for the only observation, after training."""
    recipe = load_recipe(
        {
            "environment": environment,
            "network": "linear",
            "updater": updater,
            "replay": {"name": "dataset", "path": str(file), "batch_size": 64},
            "optimizer": {"name": "adam", "learning_rate": 0.03},
            "train": {"steps": updates},
            **more,
        }
    )
    setup = build(recipe)
    engine = loop.make_loop(setup)
    progress, _ = engine.advance(engine.begin(), updates)
    agent = setup.agent
    assert int(agent.failed_at(progress.agent)[0]) == -1
    acting = jax.tree.map(lambda leaf: leaf[0], agent.acting(progress.agent))
    policy, key = agent.policy, jax.random.key(0)
    decision, _ = policy.exploit(
        acting,
        np.zeros((1, 1), "f4"),
        policy.initial(1),
        np.ones(1, bool),
        policy.draw(key, 1),
    )
    return np.asarray(decision.action)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("updater", "expected"),
    [
        pytest.param("behaviour_cloning", 0, marks=SLOW),  # the most frequent action
        ({"name": "cql", "alpha": 0.5, "target": {"polyak": 0.1}}, 1),
        pytest.param({"name": "iql", "target": {"polyak": 0.1}}, 1, marks=SLOW),
        pytest.param(
            {"name": "awac", "beta": 3.0, "target": {"polyak": 0.1}}, 1, marks=SLOW
        ),
    ],
    ids=["behaviour_cloning", "cql", "iql", "awac"],
)
def test_values_beat_imitation_where_most_actions_are_bad(tmp_path, updater, expected):
    file = write_data(tmp_path / "data.npz", bandit_data(GOOD))
    environment = "probe-reward-depends-on-action"
    assert greedy_action(environment, file, updater, 300) == expected


def box_data(seed=0):
    """Actions of the continuous probe: few near the best, 0.5, and most near −0.5."""
    rng = np.random.default_rng(seed)
    centre = np.where(rng.random(1_000) < GOOD, 0.5, -0.5)
    action = np.clip(centre + 0.1 * rng.normal(size=1_000), -1, 1)[:, None]
    return one_step_data(action.astype("f4"), -((action[:, 0] - 0.5) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("updater", "low", "high"),
    [
        ({"name": "behaviour_cloning", "loss": "mse"}, -0.3, -0.1),  # the mean, −0.2
        ("behaviour_cloning", -0.3, -0.1),
        ({"name": "cql", "alpha": 0.1, "target": {"polyak": 0.1}}, 0.2, 0.8),
        ({"name": "iql", "beta": 10.0, "target": {"polyak": 0.1}}, 0.2, 0.8),
        ({"name": "td3_bc", "alpha": 10.0, "target": {"polyak": 0.1}}, 0.2, 0.8),
        ({"name": "awac", "beta": 10.0, "target": {"polyak": 0.1}}, 0.2, 0.8),
    ],
    ids=["mse", "behaviour_cloning", "cql", "iql", "td3_bc", "awac"],
)
def test_continuous_actions(tmp_path, updater, low, high):
    file = write_data(tmp_path / "data.npz", box_data())
    network = {"name": "mlp", "layers": [32]}
    more = {"network": network, "optimizer": {"name": "adam", "learning_rate": 0.01}}
    action = greedy_action("probe-continuous-action", file, updater, 1_000, **more)
    assert low < action[0] < high


@pytest.mark.parametrize(
    ("environment", "updater", "message"),
    [
        ("CartPole-v1", "td3_bc", "`td3_bc` needs a Box of floats"),
        (
            "CartPole-v1",
            {"name": "behaviour_cloning", "loss": "mse"},
            "`loss: mse` needs actions in a Box of floats",
        ),
        ("bsuite/UmbrellaChain", "td3_bc", "`td3_bc` needs a Box of floats"),
    ],
)
def test_action_spaces_that_are_not_supported_are_refused(
    environment, updater, message
):
    data = {"environment": environment, "updater": updater, "network": "linear"}
    data["replay"] = {"name": "dataset", "path": "data.npz"}
    with pytest.raises(RlcliError, match=message):
        build(load_recipe(data))


@pytest.mark.parametrize(
    "option",
    [
        {"samples": 4},
        {"temperature": 0.1},
        {"initial_temperature": 2.0},
        {"target_entropy": 0.5},
    ],
    ids=lambda option: next(iter(option)),
)
def test_cql_refuses_options_that_have_no_effect_on_discrete_actions(option):
    data = {
        "environment": "CartPole-v1",
        "updater": {"name": "cql", **option},
        "network": "linear",
        "replay": {"name": "dataset", "path": "data.npz"},
    }
    message = f"option `{next(iter(option))}` of `cql` is for actions in a Box"
    with pytest.raises(RlcliError, match=message):
        build(load_recipe(data))


def test_awac_refuses_actions_that_have_no_values_by_sampling():
    spaces = Spaces(gymnasium.spaces.Discrete(3), gymnasium.spaces.MultiBinary(2))
    with pytest.raises(RlcliError, match="`awac` needs a Discrete action space or a B"):
        awac(Parts(spaces, never, never, optax.sgd(0.1)))


def never(*_, **__):
    raise AssertionError


@pytest.mark.slow
def test_awac_continues_online_from_a_data_set(tmp_path):
    """The data lacks the best action almost completely."""
    file = write_data(tmp_path / "data.npz", bandit_data(0.02))
    updater = {"name": "awac", "beta": 3.0, "target": {"polyak": 0.1}}
    replay = {"name": "uniform", "prefill": str(file), "capacity": 4_000}
    probe = "probe-reward-depends-on-action"
    assert greedy_action(probe, file, updater, 600, replay=replay) == 1
