"""ε-greedy and Boltzmann: probabilities estimated by counting."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.policies import ValuesOffer
from rlcli.policies.discrete import boltzmann, epsilon_greedy
from rlcli.types import Network

DRAWS = 20_000


def values():
    """A network that outputs its parameters as action values."""

    def apply(params, key, inputs, carry, first):
        assert inputs.shape[0] == first.shape[0] == 1  # one step in time
        return jnp.broadcast_to(params, (*inputs.shape[:2], *params.shape)), carry

    return ValuesOffer(Network(lambda key: {}, apply, lambda batch: ()))


def greedy_policy(actions, epsilon, start=0):
    space = gymnasium.spaces.Discrete(actions, start=start)
    return epsilon_greedy(values(), space, epsilon=epsilon)


def boltzmann_policy(actions, temperature, start=0):
    space = gymnasium.spaces.Discrete(actions, start=start)
    return boltzmann(values(), space, temperature=temperature)


@functools.partial(jax.jit, static_argnames=("make", "how", "start"))
def run(make, how, q, option, start, key):
    """One program for all values of `option`, which is ε or the temperature."""
    policy = make(len(q), option, start)
    noise = policy.draw(key, DRAWS)
    obs, first = jnp.zeros((DRAWS, 1)), jnp.zeros(DRAWS, bool)
    select = {"explore": policy.explore, "exploit": policy.exploit}[how]
    return select(q, obs, policy.initial(DRAWS), first, noise)[0]


def play(make, how, q, option, start=0):
    """Selects many actions for the same action values: actions, log_probs."""
    key = jax.random.key(0, impl="rbg")
    decision = run(make, how, np.array(q, "f4"), option, start, key)
    return np.asarray(decision.action), np.asarray(decision.extras["log_prob"])


@functools.partial(jax.jit, static_argnames=("make", "start"))
def log_prob_of(make, q, option, action, start=0):
    return make(q.shape[-1], option, start).log_prob(q, action)


CASES = [
    ([0.0, 2.0, 1.0], 0.3, [0.1, 0.8, 0.1]),
    ([2.0, 2.0, 1.0, -1.0], 0.4, [0.4, 0.4, 0.1, 0.1]),  # a tie
    ([1.0, 1.0], 0.0, [0.5, 0.5]),
    ([3.0, 1.0], 0.0, [1.0, 0.0]),
    ([3.0, 1.0, 0.0, 0.0], 1.0, [0.25] * 4),
    ([-np.inf, -1.0, -2.0], 0.0, [0.0, 1.0, 0.0]),
]


@pytest.mark.parametrize(("q", "epsilon", "probabilities"), CASES)
def test_exploration_frequencies_match_log_prob(q, epsilon, probabilities, as_likely):
    action, log_prob = play(greedy_policy, "explore", q, epsilon)
    assert as_likely(np.bincount(action, minlength=len(q)), probabilities)
    # The log-probability of an action is the logarithm of how often it is taken.
    np.testing.assert_allclose(np.exp(log_prob), np.take(probabilities, action), 1e-5)
    every = np.broadcast_to(np.array(q, "f4"), (len(q), len(q)))
    log_prob = log_prob_of(greedy_policy, every, epsilon, np.arange(len(q)))
    np.testing.assert_allclose(np.exp(log_prob), probabilities, rtol=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_exploit_selects_the_best_action_and_breaks_ties_at_random(epsilon, as_likely):
    action, _ = play(greedy_policy, "exploit", [0.0, 5.0, 5.0, -1.0], epsilon)
    assert as_likely(np.bincount(action, minlength=4), [0, 0.5, 0.5, 0])


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_actions_begin_where_the_space_begins(epsilon):
    action, log_prob = play(greedy_policy, "explore", [0.0, 1.0, 9.0], epsilon, -1)
    assert set(action) == ({1} if epsilon == 0 else {-1, 0, 1})
    np.testing.assert_allclose(np.exp(log_prob), 1 / len(set(action)), rtol=1e-5)
    action, _ = play(greedy_policy, "exploit", [9.0, 1.0, 0.0], epsilon, -1)
    assert set(action) == {-1}


def test_environments_explore_independently():
    action, _ = play(greedy_policy, "explore", [0.0, 1.0], 0.5)
    # Not synchronized: neighbours agree as often as independent draws.
    agree = np.mean(action[1:] == action[:-1])
    assert agree == pytest.approx(0.75**2 + 0.25**2, abs=0.02)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_epsilon_may_be_a_number_that_the_program_is_compiled_with(epsilon):
    ours = greedy_policy(4, epsilon)
    found = jax.jit(ours.log_prob)(np.array([1, 0, 0, 0], "f4"), 1)
    assert np.exp(found) == pytest.approx(epsilon / 4, rel=1e-5)


def test_log_prob_takes_any_leading_axes():
    q = np.broadcast_to(np.array([0, 1], "f4"), (3, 5, 2))
    action = np.indices((3, 5)).sum(0) % 2
    log_prob = log_prob_of(greedy_policy, q, 0.5, action)
    np.testing.assert_allclose(np.exp(log_prob), np.where(action, 0.75, 0.25))


@pytest.mark.parametrize(
    ("q", "temperature"),
    [
        ([0.0, 2.0, 1.0], 1.0),
        ([0.0, 2.0, 1.0], 0.5),
        ([3.0, 3.0, 3.0], 0.1),  # ties
        ([1e4, 1e4 - 1, 0.0], 2.0),
        ([1e30, 1e30, -1e30], 1e-20),  # neither overflows
        ([-np.inf, 1.0, 1.0], 1.0),  # a forbidden action
    ],
)
def test_boltzmann_takes_better_actions_as_much_more_often(q, temperature, as_likely):
    action, log_prob = play(boltzmann_policy, "explore", q, temperature, 2)
    scaled = (np.array(q) - np.max(q)) / temperature
    probabilities = np.exp(scaled) / np.sum(np.exp(scaled))
    assert as_likely(np.bincount(action - 2, minlength=3), probabilities)
    expected_log_prob = np.take(probabilities, action - 2)
    np.testing.assert_allclose(np.exp(log_prob), expected_log_prob, rtol=1e-4)
    batch = np.broadcast_to(np.array(q, "f4"), (DRAWS, 3))
    again = log_prob_of(boltzmann_policy, batch, temperature, action, start=2)
    np.testing.assert_allclose(again, log_prob, rtol=1e-5, atol=1e-7)


def test_boltzmann_exploits_the_best_and_breaks_ties_at_random(as_likely):
    inputs = boltzmann_policy, "exploit", [0.0, 5.0, 5.0, -1.0], 100.0, 1
    action, log_prob = play(*inputs)
    assert as_likely(np.bincount(action - 1, minlength=4), [0, 0.5, 0.5, 0])
    assert not np.any(log_prob)
    again, _ = play(*inputs)
    np.testing.assert_array_equal(action, again)  # the same noise, the same actions


def test_the_temperature_may_be_a_number_that_the_program_is_compiled_with():
    ours = boltzmann_policy(2, 0.5)
    found = jax.jit(ours.log_prob)(np.array([1, 0], "f4"), 1)
    assert found == pytest.approx(-np.log1p(np.exp(2)))
