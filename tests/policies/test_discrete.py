"""ε-greedy and Boltzmann: probabilities estimated by counting."""

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


def policy(actions, epsilon, start=0):
    space = gymnasium.spaces.Discrete(actions, start=start)
    return epsilon_greedy(values(), space, epsilon=epsilon)


def play(how, policy, q, seed=0):
    """Selects many actions for the same action values: actions, log_probs."""

    @jax.jit
    def run(q, key):
        noise = policy.draw(key, DRAWS)
        obs, first = jnp.zeros((DRAWS, 1)), jnp.zeros(DRAWS, bool)
        return how(q, obs, policy.initial(DRAWS), first, noise)[0]

    decision = run(jnp.asarray(q), jax.random.key(seed, impl="rbg"))
    return np.asarray(decision.action), np.asarray(decision.extras["log_prob"])


CASES = [
    ([0.0, 2.0, 1.0], 0.3, [0.1, 0.8, 0.1]),
    ([2.0, 2.0, 1.0, -1.0], 0.4, [0.4, 0.4, 0.1, 0.1]),  # a tie
    ([1.0, 1.0], 0.0, [0.5, 0.5]),
    ([3.0, 1.0], 0.0, [1.0, 0.0]),
    ([3.0, 1.0, 0.0, 0.0], 1.0, [0.25] * 4),
    ([-jnp.inf, -1.0, -2.0], 0.0, [0.0, 1.0, 0.0]),
]


@pytest.mark.parametrize(("q", "epsilon", "probabilities"), CASES)
def test_exploration_frequencies_match_log_prob(q, epsilon, probabilities, as_likely):
    ours = policy(len(q), epsilon)
    action, log_prob = play(ours.explore, ours, q)
    assert as_likely(np.bincount(action, minlength=len(q)), probabilities)
    # The log-probability of an action is the logarithm of how often it is taken.
    np.testing.assert_allclose(np.exp(log_prob), np.take(probabilities, action), 1e-5)
    every = np.broadcast_to(np.array(q, "f4"), (len(q), len(q)))
    expected_log_prob = np.exp(jax.jit(ours.log_prob)(every, np.arange(len(q))))
    np.testing.assert_allclose(expected_log_prob, probabilities, rtol=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_exploit_selects_the_best_action_and_breaks_ties_at_random(epsilon, as_likely):
    ours = policy(4, epsilon)
    action, _ = play(ours.exploit, ours, [0.0, 5.0, 5.0, -1.0])
    assert as_likely(np.bincount(action, minlength=4), [0, 0.5, 0.5, 0])


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_actions_begin_where_the_space_begins(epsilon):
    ours = policy(3, epsilon, start=-1)
    action, log_prob = play(ours.explore, ours, [0.0, 1.0, 9.0])
    assert set(action) == ({1} if epsilon == 0 else {-1, 0, 1})
    np.testing.assert_allclose(np.exp(log_prob), 1 / len(set(action)), rtol=1e-5)
    assert set(play(ours.exploit, ours, [9.0, 1.0, 0.0])[0]) == {-1}


def test_environments_explore_independently():
    ours = policy(2, 0.5)
    action, _ = play(ours.explore, ours, [0.0, 1.0])
    # Not synchronized: neighbours agree as often as independent draws.
    agree = np.mean(action[1:] == action[:-1])
    assert agree == pytest.approx(0.75**2 + 0.25**2, abs=0.02)


def test_epsilon_may_be_known_only_when_the_program_runs():
    def log_prob(epsilon):
        return policy(4, epsilon).log_prob(jnp.array([1.0, 0, 0, 0]), jnp.array(1))

    assert jax.jit(log_prob)(0.2) == pytest.approx(np.log(0.05))


def test_log_prob_takes_any_leading_axes():
    ours = policy(2, 0.5)
    q = np.broadcast_to([0.0, 1.0], (3, 5, 2))
    action = np.indices((3, 5)).sum(0) % 2
    np.testing.assert_allclose(
        np.exp(ours.log_prob(q, action)), np.where(action, 0.75, 0.25)
    )


def boltzmann_policy(actions, temperature, start=0):
    space = gymnasium.spaces.Discrete(actions, start=start)
    return boltzmann(values(), space, temperature=temperature)


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
    ours = boltzmann_policy(3, temperature, start=2)
    action, log_prob = play(ours.explore, ours, q)
    scaled = (np.array(q) - np.max(q)) / temperature
    probabilities = np.exp(scaled) / np.sum(np.exp(scaled))
    assert as_likely(np.bincount(action - 2, minlength=3), probabilities)
    expected_log_prob = np.take(probabilities, action - 2)
    np.testing.assert_allclose(np.exp(log_prob), expected_log_prob, rtol=1e-4)
    batch = np.broadcast_to(np.array(q, "f4"), (DRAWS, 3))
    again = jax.jit(ours.log_prob)(batch, action)
    np.testing.assert_allclose(again, log_prob, rtol=1e-5, atol=1e-7)


def test_boltzmann_exploits_the_best_and_breaks_ties_at_random(as_likely):
    ours = boltzmann_policy(4, 100.0, start=1)
    action, log_prob = play(ours.exploit, ours, [0.0, 5.0, 5.0, -1.0])
    assert as_likely(np.bincount(action - 1, minlength=4), [0, 0.5, 0.5, 0])
    assert not np.any(log_prob)
    again, _ = play(ours.exploit, ours, [0.0, 5.0, 5.0, -1.0])
    np.testing.assert_array_equal(action, again)  # the same noise, the same actions


def test_temperature_may_be_known_only_when_the_program_runs():
    def log_prob(temperature):
        return boltzmann_policy(2, temperature).log_prob(
            jnp.array([1.0, 0.0]), jnp.array(1)
        )

    assert jax.jit(log_prob)(0.5) == pytest.approx(-np.log1p(np.exp(2)))
