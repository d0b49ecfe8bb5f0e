"""Truncated quantile critics against a loop over rows, actions and quantiles."""

import functools

import numpy as np
import pytest
from tiers import quick_first

from rlcli import recipe
from rlcli.errors import RlcliError
from rlcli.updaters.off_policy.tqc import tqc

QUANTILES, CRITICS = 4, 2


@pytest.fixture(scope="module")
def tabular(soft_tables):
    head = {"name": "quantile", "quantiles": QUANTILES}
    target = {"every": 1_000}

    @functools.cache
    def build(drop):
        return soft_tables(tqc, CRITICS, head, QUANTILES, drop=drop, target=target)

    return build


def target_atoms(ours, at, drop):
    """The values of the target of a row, and their probabilities."""
    rows, atoms = ours.rows, []
    for action, p in enumerate(ours.policy(rows.next_obs[at])):
        pooled = sorted(ours.targets[:, rows.next_obs[at], action].ravel())
        kept = pooled[: (QUANTILES - drop) * CRITICS]
        soft = np.array(kept) - ours.tau * np.log(p)
        values = rows.reward[at] + rows.discount[at] * soft
        atoms += [(value, p / len(kept)) for value in values]
    return np.array(atoms).T


@pytest.mark.parametrize("drop", quick_first([1, 0, 3]))
def test_an_update_equals_a_loop(tabular, drop):
    ours = tabular(drop)
    rows, (state, report) = ours.rows, ours.update()
    expected, errors = ours.critics.copy(), np.zeros((CRITICS, *rows.obs.shape))
    fractions = (np.arange(QUANTILES) + 0.5) / QUANTILES
    for at in np.ndindex(rows.obs.shape):
        values, probabilities = target_atoms(ours, at, drop)
        place = rows.obs[at], rows.action[at]
        for critic in range(CRITICS):
            quantiles = ours.critics[critic][place]
            errors[critic][at] = values @ probabilities - quantiles.mean()
            for i, (theta, tau) in enumerate(zip(quantiles, fractions, strict=True)):
                u = values - theta
                slope = np.abs(tau - (u < 0)) * np.clip(u, -1, 1)  # of Huber's loss
                mean = slope @ probabilities / QUANTILES  # over the quantiles
                expected[critic][place][i] += mean / rows.obs.size
    found = ours.table(state.params, "critic")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(report.priority, np.abs(errors).mean(axis=0), rtol=1e-4)


def test_the_policy_maximizes_the_mean_of_all_quantiles(tabular):
    ours = tabular(1)
    state, _ = ours.update()
    q = ours.table(state.params, "critic").mean(axis=(0, 3))
    found = ours.table(state.params, "policy")
    np.testing.assert_allclose(found, ours.updated_logits(q), atol=1e-5)


@pytest.mark.parametrize(
    "network", ["mlp", {"policy": "mlp", "critic": "linear"}, {"default": "linear"}]
)
def test_critics_have_quantiles_by_default_and_the_policy_has_none(network):
    data = {"environment": "Pendulum-v1", "updater": "tqc", "network": network}
    read = recipe.load_recipe(data)
    assert read.network["critic"].head["name"] == "quantile"
    policy = read.network.get("policy") or read.network[recipe.DEFAULT]
    assert policy.head == {}
    assert recipe.load_recipe(recipe.resolve(read)) == read


def test_a_head_on_a_shared_torso_changes_the_default_of_its_function():
    network = {"shared": "mlp", "policy": {}, "critic": {"quantiles": 9}}
    data = {"environment": "Pendulum-v1", "updater": "tqc", "network": network}
    head = recipe.load_recipe(data).network["critic"].head
    assert (head["name"], head["quantiles"]) == ("quantile", 9)


def test_more_dropped_quantiles_than_a_head_has_are_refused(tabular):
    with pytest.raises(RlcliError, match="drops 4 quantiles of each critic, but") as no:
        tabular(QUANTILES).update()
    assert no.value.hint.startswith("lower `drop`")
