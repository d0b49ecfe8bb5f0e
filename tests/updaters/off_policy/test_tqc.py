"""Truncated quantile critics against a loop over rows, actions and quantiles."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlcli import recipe
from rlcli.errors import RlcliError
from rlcli.networks.functions import separate_network
from rlcli.networks.torsos import table
from rlcli.policies.sampled import sampled
from rlcli.types import Clock, Transition
from rlcli.updaters import Spaces
from rlcli.updaters.off_policy.tqc import tqc

STATES, ACTIONS, QUANTILES, CRITICS, SHAPE, TAU = 5, 3, 4, 2, (2, 3), 0.3
RNG = np.random.default_rng(0)
TABLES, TARGETS = RNG.normal(size=(2, CRITICS, STATES, ACTIONS, QUANTILES))
LOGITS = RNG.normal(size=(STATES, ACTIONS))
KEY = jax.random.key(0)


def tabular_updater(**options):
    """TQC with tables as critics and policy."""

    def networks(name, head, action=None, copies=None):
        quantiles = {"name": "quantile", "quantiles": QUANTILES}
        made = head(**quantiles if name == "critic" else {})
        observation = gymnasium.spaces.Discrete(STATES)
        return separate_network(name, table(), made, observation, copies)

    spaces = Spaces(
        gymnasium.spaces.Discrete(STATES), gymnasium.spaces.Discrete(ACTIONS)
    )
    return tqc(
        spaces,
        networks,
        lambda distribution, **_: sampled(distribution),
        optax.sgd(1.0),
        temperature=TAU,
        critics=CRITICS,
        target={"every": 1_000},
        **options,
    )


def fill(tree, **tables):
    """The parameters with these tables."""
    return {
        name: jax.tree.map(
            lambda leaf, name=name: jnp.asarray(tables[name], "f4").reshape(leaf.shape),
            group,
        )
        for name, group in tree.items()
    }


def updated(drop):
    """The rows, and the state and report of one update."""
    ours = tabular_updater(drop=drop)
    state = ours.init(KEY)
    state = state._replace(
        params=fill(state.params, critic=TABLES, policy=LOGITS),
        target=fill(state.target, critic=TARGETS),
    )
    rng = np.random.default_rng(1)
    obs, next_obs = rng.integers(0, STATES, (2, *SHAPE))
    rows = Transition(
        obs=obs,
        action=rng.integers(0, ACTIONS, SHAPE),
        reward=rng.normal(size=SHAPE).astype("f4"),
        discount=rng.choice([0.0, 0.9], SHAPE).astype("f4"),
        next_obs=next_obs,
        first=np.zeros(SHAPE, bool),
        last=np.zeros(SHAPE, bool),
        extras={},
    )
    clock = Clock.zero()._replace(compute_metrics=np.bool_(True))
    weight = np.ones(SHAPE, "f4")
    return rows, *jax.jit(ours.update)(state, rows, weight, clock, KEY)


def policy_at(state):
    likely = np.exp(LOGITS[state] - LOGITS[state].max())
    return likely / likely.sum()


def target_atoms(rows, at, drop):
    """The values of the target of a row, and their probabilities."""
    atoms = []
    for action, p in enumerate(policy_at(rows.next_obs[at])):
        pooled = sorted(TARGETS[:, rows.next_obs[at], action].ravel())
        kept = pooled[: (QUANTILES - drop) * CRITICS]
        atoms += [
            (rows.reward[at] + rows.discount[at] * (z - TAU * np.log(p)), p / len(kept))
            for z in kept
        ]
    return np.array(atoms).T


@pytest.mark.parametrize("drop", [0, 1, 3])
def test_an_update_equals_a_loop(drop):
    rows, state, report = updated(drop)
    expected, errors = TABLES.copy(), np.zeros((CRITICS, *SHAPE))
    fractions = (np.arange(QUANTILES) + 0.5) / QUANTILES
    for at in np.ndindex(SHAPE):
        values, probabilities = target_atoms(rows, at, drop)
        place = rows.obs[at], rows.action[at]
        for critic in range(CRITICS):
            quantiles = TABLES[critic][place]
            errors[critic][at] = values @ probabilities - quantiles.mean()
            for i, (theta, tau) in enumerate(zip(quantiles, fractions, strict=True)):
                u = values - theta
                slope = np.abs(tau - (u < 0)) * np.clip(u, -1, 1)  # of Huber's loss
                expected[critic][place][i] += slope @ probabilities / rows.obs.size
    (critic,) = jax.tree.leaves(state.params["critic"])
    np.testing.assert_allclose(
        np.asarray(critic).reshape(expected.shape), expected, atol=1e-5
    )
    np.testing.assert_allclose(report.priority, np.abs(errors).mean(axis=0), rtol=1e-4)


def test_the_policy_maximizes_the_mean_of_all_quantiles():
    rows, state, _ = updated(drop=1)
    (critic,) = jax.tree.leaves(state.params["critic"])
    q = np.asarray(critic).reshape(TABLES.shape).mean(axis=(0, 3))
    expected = LOGITS.copy()
    for at in np.ndindex(SHAPE):
        likely = policy_at(rows.obs[at])
        worth = q[rows.obs[at]] - TAU * np.log(likely)
        expected[rows.obs[at]] += likely * (worth - likely @ worth) / rows.obs.size
    (policy,) = jax.tree.leaves(state.params["policy"])
    np.testing.assert_allclose(
        np.asarray(policy).reshape(expected.shape), expected, atol=1e-5
    )


def test_critics_have_quantiles_by_default_and_the_policy_has_none():
    load = functools.partial(dict, environment="Pendulum-v1", updater="tqc")
    for network in (
        None,
        "mlp",
        {"policy": "mlp", "critic": "linear"},
        {"default": {}},
    ):
        section = {} if network is None else {"network": network}
        read = recipe.load_recipe(load(**section))
        assert read.network["critic"].head["name"] == "quantile"
        policy = read.network.get("policy") or read.network[recipe.DEFAULT]
        assert policy.head == {}
        assert recipe.load_recipe(recipe.resolve(read)) == read
    shared = recipe.load_recipe(
        load(network={"shared": "mlp", "policy": {}, "critic": {"quantiles": 9}})
    )
    assert shared.network["critic"].head["quantiles"] == 9


def test_more_dropped_quantiles_than_a_head_has_are_refused():
    with pytest.raises(RlcliError, match="drops 4 quantiles of each critic, but") as no:
        updated(drop=QUANTILES)
    assert no.value.hint.startswith("lower `drop`")
