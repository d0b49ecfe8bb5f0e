"""Planning: with a known model, the search finds the best action."""

import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.policies import PlanningModel, SearchState
from rlcli.policies.planning import gumbel_muzero
from rlcli.registry.libraries import install_command

STATES, ACTIONS, START, GAMMA = 6, 3, 2, 0.8
BATCH = 400
CHOICE = gymnasium.spaces.Discrete(ACTIONS, start=START)
SHOWN = gymnasium.spaces.Dict({"state": gymnasium.spaces.Discrete(STATES)})
MASKED = gymnasium.spaces.Dict(
    {**SHOWN.spaces, action_masks.MASK: gymnasium.spaces.MultiBinary(ACTIONS)}
)


def decision_processes(seed=0):
    """Rewards and where actions lead, `[BATCH, STATES, ACTIONS]`, and the values q."""
    rng = np.random.default_rng(seed)
    shape = BATCH, STATES, ACTIONS
    rewards, leads = rng.normal(size=shape), rng.integers(0, STATES, shape)
    q = np.zeros(shape)
    for _ in range(200):
        best = q.max(-1)
        q = rewards + GAMMA * best[np.arange(BATCH)[:, None, None], leads]
    return rewards.astype("f4"), leads, q.astype("f4")


def tabular(rewards, leads, values, logits=None):
    """A model that knows its decision process; a hidden state is (process, state)."""
    rows = jnp.arange(BATCH)

    def seen(process, state):
        same = jnp.zeros(ACTIONS) if logits is None else logits
        prior = jnp.broadcast_to(same, (len(state), ACTIONS))
        return SearchState((process, state), prior, jnp.asarray(values)[process, state])

    def root(params, obs):
        del params
        return seen(rows, jnp.asarray(action_masks.remove_mask(obs)["state"]))

    def ahead(params, hidden, action):
        del params
        at = (*hidden, action - START)
        return jnp.asarray(rewards)[at], seen(hidden[0], jnp.asarray(leads)[at])

    return PlanningModel(root, ahead, CHOICE)


def decider(model, how="exploit", space=SHOWN, **options):
    """What the policy decides in each of the processes, compiled once."""
    policy = gumbel_muzero(model, space, GAMMA, **options)

    @jax.jit
    def decide(obs, key):
        noise, first = policy.draw(key, BATCH), jnp.zeros(BATCH, bool)
        act = getattr(policy, how)
        return act((), obs, policy.initial(BATCH), first, noise)[0]

    return lambda obs, seed=0: decide(obs, jax.random.key(seed))


def has_clear_best(q, gap):
    """Where the best action is better than all others by as much."""
    ordered = np.sort(q, axis=-1)
    return ordered[..., -1] - ordered[..., -2] > gap


def test_with_true_values_the_search_selects_the_best_action():
    pytest.importorskip("mctx")
    rewards, leads, q = decision_processes()
    state = np.random.default_rng(1).integers(0, STATES, BATCH)
    decide = decider(tabular(rewards, leads, q.max(-1)), simulations=3)
    actual = decide({"state": state})
    # Three simulations: each action once, and then the true value behind it.
    here = q[np.arange(BATCH), state]
    sure = has_clear_best(here, 0.01)
    assert sure.sum() > 300
    np.testing.assert_array_equal(actual.action[sure] - START, here.argmax(-1)[sure])
    weights = actual.extras["action_weights"]
    np.testing.assert_allclose(jnp.sum(weights, -1), 1, rtol=1e-5)
    worth = np.sum(weights * here, axis=-1)  # of the improved policy, by true values
    np.testing.assert_allclose(actual.extras["root_value"], worth, atol=1e-4)
    taken = np.take_along_axis(weights, actual.action[:, None] - START, -1)[:, 0]
    np.testing.assert_allclose(actual.extras["log_prob"], np.log(taken), atol=1e-5)


def test_without_values_the_search_finds_the_best_action_by_lookahead():
    pytest.importorskip("mctx")
    rewards, leads, q = decision_processes()
    state = np.random.default_rng(2).integers(0, STATES, BATCH)
    model = tabular(rewards, leads, np.zeros((BATCH, STATES), "f4"))
    here = q[np.arange(BATCH), state]
    sure, best = has_clear_best(here, 0.5), here.argmax(-1)
    actual = decider(model, simulations=64)({"state": state}).action - START
    at_once = rewards[np.arange(BATCH), state].argmax(-1)
    assert np.mean((at_once == best)[sure]) < 0.85
    assert np.mean((actual == best)[sure]) > 0.9


def test_illegal_actions_are_never_selected_and_have_no_weight():
    pytest.importorskip("mctx")
    rewards, leads, q = decision_processes()
    rng = np.random.default_rng(3)
    state, mask = rng.integers(0, STATES, BATCH), rng.random((BATCH, ACTIONS)) < 0.5
    mask[np.arange(BATCH), rng.integers(0, ACTIONS, BATCH)] = True
    model = tabular(rewards, leads, q.max(-1))
    decide = decider(model, "explore", MASKED, simulations=6, gumbel_scale=3.0)
    actual = decide({"state": state, action_masks.MASK: mask.astype("i1")})
    assert np.all(mask[np.arange(BATCH), actual.action - START])
    weights = np.asarray(actual.extras["action_weights"])
    assert np.all(weights[~mask] == 0)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    # The best of what is allowed, and not of all, is what is made likelier.
    here = np.where(mask, q[np.arange(BATCH), state], -np.inf)
    sure = has_clear_best(here, 0.5) & (mask.sum(-1) > 1)
    assert np.mean((weights.argmax(-1) == here.argmax(-1))[sure]) > 0.9


def test_gumbel_noise_samples_from_the_prior_and_evaluation_has_none():
    pytest.importorskip("mctx")
    zeros = np.zeros((BATCH, STATES, ACTIONS), "f4")
    logits = jnp.log(jnp.array([0.6, 0.3, 0.1]))
    model = tabular(zeros, zeros.astype(int), zeros[..., 0], logits)
    obs = {"state": np.zeros(BATCH, int)}
    explore = decider(model, "explore", simulations=3)
    actions = np.concatenate([explore(obs, seed).action for seed in range(10)])
    share = np.bincount(actions - START, minlength=ACTIONS) / len(actions)
    np.testing.assert_allclose(share, [0.6, 0.3, 0.1], atol=0.03)
    np.testing.assert_array_equal(decider(model, simulations=3)(obs).action, START)


def test_the_probability_of_an_action_is_that_of_the_networks_logits():
    pytest.importorskip("mctx")
    model = tabular(None, None, None)
    policy = gumbel_muzero(model, SHOWN, GAMMA)
    logits = jnp.log(jnp.array([[0.6, 0.3, 0.1]] * 3)) + 4
    actual = policy.log_prob(logits, START + jnp.arange(3))
    np.testing.assert_allclose(jnp.exp(actual), [0.6, 0.3, 0.1], rtol=1e-5)


def test_without_its_library_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mctx", None)
    with pytest.raises(RlcliError, match="`mctx` cannot be imported") as caught:
        gumbel_muzero(tabular(None, None, None), SHOWN, GAMMA)
    assert caught.value.hint == install_command("muzero")
