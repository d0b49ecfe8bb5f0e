"""REDQ against a loop over the subsets of critics, and dropout in its critics."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick_first

from rlcli import recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.networks.torsos import mlp
from rlcli.updaters.off_policy.redq import redq

CRITICS, SUBSET = 3, 2


@pytest.fixture(scope="module")
def ours(soft_tables):
    return soft_tables(redq, CRITICS, subset=SUBSET, target={"every": 1_000})


def updated_critics(ours, members):
    """The critics after one step, with targets of the minimum over `members`."""
    rows, expected = ours.rows, ours.critics.copy()
    for at in np.ndindex(rows.obs.shape):
        likely = ours.policy(rows.next_obs[at])
        lowest = ours.targets[list(members), rows.next_obs[at], :, 0].min(axis=0)
        value = likely @ (lowest - ours.tau * np.log(likely))
        target = rows.reward[at] + rows.discount[at] * value
        place = rows.obs[at], rows.action[at], 0
        for critic, table in zip(expected, ours.critics, strict=True):
            critic[place] += 2 * (target - table[place]) / rows.obs.size
    return expected


@pytest.mark.slow
def test_targets_are_the_minimum_over_a_random_subset_of_critics(ours):
    subsets = [*itertools.combinations(range(CRITICS), SUBSET)]
    outcomes = [updated_critics(ours, members) for members in subsets]
    seen = set()
    for key in range(20):
        state, _ = ours.update(key=key)
        found = ours.table(state.params, "critic")
        (match,) = (
            members
            for members, outcome in zip(subsets, outcomes, strict=True)
            if np.allclose(found, outcome, atol=1e-5)
        )
        seen.add(match)
    assert seen == {*subsets}


def test_the_policy_maximizes_the_mean_over_critics(ours):
    state, _ = ours.update()
    q = ours.table(state.params, "critic").mean(axis=(0, 3))
    found = ours.table(state.params, "policy")
    np.testing.assert_allclose(found, ours.updated_logits(q), atol=1e-5)


def test_only_the_policy_waits_for_the_delay(soft_tables):
    ours = soft_tables(redq, CRITICS, subset=SUBSET, delay=3, target={"polyak": 0.5})
    state = ours.initial()
    for updates in range(6):
        before, (state, _) = state, ours.update(state, updates, updates)
        halfway = (
            ours.table(before.target, "critic") + ours.table(state.params, "critic")
        ) / 2
        np.testing.assert_allclose(ours.table(state.target, "critic"), halfway, 1e-5)
        policies = [ours.table(each.params, "policy") for each in (before, state)]
        assert np.array_equal(*policies) == (updates % 3 != 2)


def test_a_subset_larger_than_the_ensemble_is_refused(soft_tables):
    with pytest.raises(RlcliError, match="a `subset` of 3 critics, but has 2"):
        soft_tables(redq, 2, subset=3)


@pytest.mark.slow
@pytest.mark.parametrize("rate", quick_first([0.5, 0.0]))
def test_dropout_changes_the_losses_but_not_the_estimates(soft_tables, rate):
    """Over Discrete actions, with all critics in targets, nothing else is random."""
    torso = mlp(layers=[8], dropout=rate)
    ours = soft_tables(redq, SUBSET, subset=SUBSET, torso=torso)
    state = ours.init(jax.random.key(0))
    first, second = (ours.update(state, key)[1].metrics for key in (0, 1))
    for name in ("q", "td_error", "policy_loss"):
        assert (first[name] == second[name]) == (rate == 0)
    estimate = jax.jit(ours.updater.estimate)
    estimates = [estimate(state, ours.rows, jax.random.key(i)) for i in (0, 1)]
    jax.tree.map(np.testing.assert_array_equal, *estimates)


def test_estimates_are_the_minimum_over_a_random_subset_of_critics(soft_tables):
    """Of six critics, as for the bootstrap values of λ-returns and Retrace.

    All values of critic k are k, so the minimum of two is k for 5 − k of the 15 pairs.
    """
    ours = soft_tables(redq, 6, subset=SUBSET)
    values = np.arange(6)[:, None, None, None]
    ours.critics, ours.targets = np.broadcast_to(values, (2, *ours.critics.shape))
    state, draws = jax.tree.map(jnp.asarray, ours.initial()), 3_000

    @jax.jit
    @jax.vmap
    def least(key):
        return ours.updater.estimate(state, ours.rows, key)

    found = least(jax.random.split(jax.random.key(0), draws)).q_tm1
    assert np.all(found == found[:, :1, :1])  # the same critics for a whole batch
    counts = np.bincount(found[:, 0, 0].astype(int), minlength=6) / draws
    np.testing.assert_allclose(counts, np.arange(5, -1, -1) / 15, atol=0.03)


PENDULUM = {"environment": "Pendulum-v1", "updater": "redq", "train": {"steps": 2_000}}
DROPOUT = {"name": "mlp", "dropout": 0.1}


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (DROPOUT, "network `policy` is not one"),
        (
            {"shared": DROPOUT, "policy": {}, "critic": {}},
            "network `policy` shares its torso",
        ),
    ],
)
def test_dropout_is_refused_where_it_would_have_no_effect(network, reason):
    with pytest.raises(RlcliError, match=reason) as caught:
        build(recipe.load_recipe({**PENDULUM, "network": network}))
    assert caught.value.hint.startswith("set it for one function")
