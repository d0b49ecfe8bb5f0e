"""Sampling policies: their actions and log-probabilities."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from tiers import quick_first

from rlcli import distributions
from rlcli.policies import DistributionOffer
from rlcli.policies.sampled import random, sampled
from rlcli.types import Network

DRAWS = 4_000
KEY = jax.random.key(0, impl="rbg")  # compiles fastest


def network():
    """A network that outputs its parameters, with a carry that counts steps."""

    def apply(params, key, inputs, carry, first):
        shown = jnp.broadcast_to(params, (*inputs.shape[:2], *params.shape))
        carry = jnp.where(first[0], 0, carry) + 1
        return shown, carry[None]

    return Network(lambda key: {}, apply, lambda batch: jnp.zeros(batch, jnp.int32))


def play(how, policy, outputs, first=False):
    @jax.jit
    def run(outputs, key):
        noise = policy.draw(key, DRAWS)
        obs, firsts = jnp.zeros((DRAWS, 1)), jnp.full(DRAWS, first)
        return how(outputs, obs, policy.initial(DRAWS), firsts, noise)

    return jax.device_get(run(np.asarray(outputs, "f4"), KEY))


@pytest.mark.parametrize(
    ("family", "outputs"),
    [
        (distributions.categorical(3, start=1), [0.0, 1.0, 2.0]),
        (distributions.normal((2,)), [1.0, -2.0, 0.5, -1.0]),
    ],
)
def test_explore_samples_and_exploit_returns_the_mode(family, outputs):
    policy = sampled(DistributionOffer(network(), family))
    explored, _ = play(policy.explore, policy, outputs)
    exploited, _ = play(policy.exploit, policy, outputs)
    parameters = np.broadcast_to(np.array(outputs, "f4"), (DRAWS, len(outputs)))
    mode, log_prob = jax.jit(family.mode)(parameters), jax.jit(family.log_prob)
    np.testing.assert_array_equal(exploited.action, mode)
    assert len(np.unique(explored.action, axis=0)) > 1
    for decision in (explored, exploited):
        np.testing.assert_allclose(
            decision.extras["log_prob"],
            log_prob(parameters, decision.action),
            rtol=1e-6,
        )
    again = jax.jit(policy.log_prob)(parameters, explored.action)
    np.testing.assert_allclose(explored.extras["log_prob"], again, rtol=1e-6)


def test_sample_frequencies_match_the_distribution(as_likely):
    family = distributions.categorical(3)
    policy = sampled(DistributionOffer(network(), family))
    decision, _ = play(policy.explore, policy, np.log([0.2, 0.3, 0.5]))
    assert as_likely(np.bincount(decision.action, minlength=3), [0.2, 0.3, 0.5])


def test_the_carry_of_the_network_passes_from_step_to_step():
    policy = sampled(DistributionOffer(network(), distributions.categorical(2)))

    @jax.jit
    def next_state(state, first):
        noise, zeros = policy.draw(jax.random.key(0), 2), jnp.zeros(2)
        return policy.explore(zeros, zeros[:, None], state, first, noise)[1]

    state, first = policy.initial(2), np.array([True, True])
    for expected in ([1, 1], [2, 1], [3, 2]):
        state = next_state(state, first)
        np.testing.assert_array_equal(state[0], expected)
        first = np.array([False, expected == [1, 1]])  # the second begins anew, once


def play_random(space):
    policy = random(space)

    def both(*given):
        return policy.explore(*given), policy.exploit(*given)

    (explored, _), (exploited, _) = play(both, policy, 0.0)
    np.testing.assert_array_equal(explored.action, exploited.action)
    return explored.action, explored.extras["log_prob"]


def test_random_actions_are_spread_over_a_discrete_space(as_likely):
    action, log_prob = play_random(spaces.Discrete(4, start=2))
    assert as_likely(np.bincount(action - 2, minlength=4), [0.25] * 4)
    np.testing.assert_allclose(log_prob, np.log(0.25), rtol=1e-6)
    assert log_prob.shape == (DRAWS,)


def test_random_actions_are_spread_over_a_box(is_uniform):
    space = spaces.Box(np.array([-1.0, 0.0], "f4"), np.array([1.0, 4.0], "f4"))
    action, log_prob = play_random(space)
    assert action.shape == (DRAWS, 2)
    assert np.all((action >= space.low) & (action <= space.high))
    assert is_uniform(action, space.low, space.high)
    np.testing.assert_allclose(log_prob, -np.log(8.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("space", "elements"),
    quick_first(
        [
            (spaces.Box(-128, 127, (1,), np.int8), 256),
            (spaces.MultiDiscrete([2, 3]), 6),
            (spaces.MultiBinary(3), 8),
            (spaces.Box(0, 1, (2,), np.int32), 4),
        ],
        quick=2,
    ),
)
def test_discrete_random_actions_are_equally_likely(space, elements):
    action, log_prob = play_random(space)
    assert len(np.unique(action, axis=0)) == elements
    np.testing.assert_allclose(log_prob, -np.log(elements), rtol=1e-5)


def test_an_unbounded_box_has_random_actions_too():
    action, log_prob = play_random(gymnasium.spaces.Box(-np.inf, np.inf, (2,)))
    assert np.all(np.isfinite(action))
    assert np.all(np.isfinite(log_prob))


def test_random_actions_of_a_tuple_and_a_dict_are_those_of_their_members():
    space = spaces.Dict(
        {
            "one": spaces.Discrete(3),
            "two": spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)]),
        }
    )
    policy = random(space)
    decision, _ = play(policy.explore, policy, 0.0)
    log_prob = decision.extras["log_prob"]
    assert log_prob.shape == (DRAWS,)
    np.testing.assert_allclose(log_prob, -np.log(3 * 2**2 * 2**2), rtol=1e-5)
    box, bits = decision.action["two"]
    assert (box.shape, bits.shape) == ((DRAWS, 2), (DRAWS, 2))
    inside_out = random(spaces.Tuple([space["two"], space["one"]]))
    action = (decision.action["two"], decision.action["one"])
    assert jax.eval_shape(inside_out.log_prob, (), action).shape == (DRAWS,)


BOX = spaces.Box(np.array([-2.0, 0.0], "f4"), np.array([2.0, 1e-3], "f4"))
CONTINUOUS = {
    "normal": distributions.normal((2,)),
    "squashed": distributions.squashed_normal(BOX),
    "composite": distributions.distribution_for(
        spaces.Dict({"box": BOX, "choice": spaces.Discrete(2)}), box="squashed_normal"
    ),
}


@pytest.mark.parametrize("family", CONTINUOUS.values(), ids=CONTINUOUS)
def test_with_unchanged_parameters_the_ratio_of_a_stored_action_is_one(family):
    """Near bounds too: what is stored was rounded, and the density is of that."""
    rng = np.random.default_rng(0)
    wild = rng.normal(scale=3.0, size=(DRAWS, family.size)).astype("f4")

    def echo(params, key, inputs, carry, first):
        return inputs, carry

    echoing = Network(lambda key: {}, echo, lambda batch: ())
    policy = sampled(DistributionOffer(echoing, family))

    @jax.jit
    def explore(outputs):
        noise, first = policy.draw(KEY, DRAWS), jnp.zeros(DRAWS, bool)
        return policy.explore((), outputs, policy.initial(DRAWS), first, noise)[0]

    decision = jax.device_get(explore(wild))
    stored = jax.tree.map(
        lambda leaf: leaf.reshape((40, -1, *leaf.shape[1:])),
        (wild, decision.action),
    )
    again = np.asarray(jax.jit(policy.log_prob)(*stored)).reshape(-1)
    log_ratio = again - decision.extras["log_prob"]
    np.testing.assert_allclose(log_ratio, 0, atol=2e-6 * np.max(np.abs(again)))
