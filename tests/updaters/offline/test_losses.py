"""The losses of offline updaters, against loops in NumPy."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import distributions
from rlcli.networks.predictions import IDENTITY, Scalar
from rlcli.types import Network, Transition
from rlcli.updaters.critics import Critic
from rlcli.updaters.off_policy.actors import ActionChoices, Actor
from rlcli.updaters.off_policy.off_policy_actor_critic import (
    ZERO_TEMPERATURE,
    OffPolicyOptions,
    OffPolicyParts,
)
from rlcli.updaters.offline.awac import awac_loss
from rlcli.updaters.offline.behaviour_cloning import squared_error
from rlcli.updaters.offline.cql import continuous_penalty, discrete_penalty
from rlcli.updaters.offline.iql import expectile_loss
from rlcli.updaters.offline.td3_bc import td3_bc_loss

BOX = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)


def never(*_, **__):
    raise AssertionError


def off_policy_parts(predict_action, decide=never, family=None):
    """Parts of which a loss uses only these functions."""

    def apply(params, key, obs, carry, first):
        return obs, carry

    return OffPolicyParts(
        actor=Actor(Network(never, apply, never), decide, {}, family),
        critic=Critic(never, predict_action, never, never),
        temperature=ZERO_TEMPERATURE,
        transform=IDENTITY,
        options=OffPolicyOptions(),
    )


def rows_of(action):
    """Rows with these actions `[T, B, ...]`."""
    zeros, false = np.zeros(action.shape[:2], "f4"), np.zeros(action.shape[:2], bool)
    return Transition(zeros, action, zeros, zeros, zeros, false, false, {})


def choice_of(action, outputs):
    """A single action `[T, B, ...]`, from these outputs of the policy."""
    ones = np.ones((*action.shape[:2], 1), "f4")
    return ActionChoices(action, ones, np.zeros_like(ones), outputs)


def test_the_discrete_penalty_is_the_gap_between_soft_maximum_and_action():
    rng = np.random.default_rng(0)
    q, action = rng.normal(size=(2, 3, 4, 5)).astype("f4"), rng.integers(0, 5, (3, 4))
    found = np.asarray(jax.jit(discrete_penalty)(0.7, q, action))
    for t, b in np.ndindex(3, 4):
        gaps = [
            np.log(sum(np.exp(each[t, b]))) - each[t, b, action[t, b]] for each in q
        ]
        np.testing.assert_allclose(found[t, b], 0.7 * sum(gaps), rtol=1e-4)


def test_the_continuous_penalty_estimates_the_integral_over_actions():
    """With q(s, a) = k a and a policy that is normal, squashed into the Box."""
    family = distributions.squashed_normal(BOX)
    slopes = np.array([0.5, -1.0])  # of two critics
    shape = (1, 2)

    def decide(obs, first, key):
        outputs = jnp.broadcast_to(jnp.array([0.3, -0.2]), (*shape, 2))
        noise = family.draw(key, 2).reshape((*shape, -1))
        action, log_prob = family.differentiable(outputs, noise)
        return choice_of(action, outputs)._replace(log_prob=log_prob[..., None])

    def predict_action(role, params, key, obs, action, first):
        return Scalar(slopes[:, None, None, None] * action[None, ..., :1])

    parts = off_policy_parts(predict_action, decide)
    action = np.array([[[0.5], [-1.5]]], "f4")
    rows = rows_of(action)
    penalty = jax.jit(
        lambda key: continuous_penalty(0.5, 4_000, BOX, parts, (), rows, key)
    )
    found = np.asarray(penalty(jax.random.key(0)))
    grid = np.linspace(-2, 2, 100_001)
    for column in range(2):
        gaps = [
            np.log(np.trapezoid(np.exp(k * grid), grid)) - k * action[0, column, 0]
            for k in slopes
        ]
        np.testing.assert_allclose(found[0, column], 0.5 * sum(gaps), atol=0.05)


@pytest.mark.parametrize("expectile", [0.3, 0.5, 0.9])
def test_the_minimum_of_the_expectile_loss_is_the_expectile(expectile):
    values = np.random.default_rng(0).normal(size=2_000).astype("f4")
    candidates = np.linspace(-2, 2, 801, dtype="f4")
    loss = jax.jit(expectile_loss)
    losses = np.mean(loss(values - candidates[:, None], expectile), axis=1)
    best = candidates[np.argmin(losses)]
    # The definition: above it and below it, the weighted distances are equal.
    above = expectile * np.sum(np.maximum(values - best, 0))
    below = (1 - expectile) * np.sum(np.maximum(best - values, 0))
    assert abs(above - below) / (above + below) < 0.02
    found = loss(np.array([-2, 3], "f4"), 0.7)
    np.testing.assert_allclose(found, [0.3 * 4, 0.7 * 9], rtol=1e-6)


def test_the_policy_of_td3_bc_weighs_values_by_their_mean_size():
    rng = np.random.default_rng(0)
    q = (rng.normal(size=(2, 3)) * 7).astype("f4")
    chosen, action = rng.uniform(-2, 2, (2, 2, 3, 1)).astype("f4")
    rows, choice = rows_of(action), choice_of(chosen, chosen)
    loss = jax.jit(functools.partial(td3_bc_loss, 2.5))
    found = loss(-q, choice, rows)
    expected = -2.5 * q / np.mean(np.abs(q)) + (chosen - action)[..., 0] ** 2
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_squared_error_is_a_mean_over_the_entries_of_an_action():
    action, target = np.arange(12.0).reshape(1, 2, 2, 3), np.zeros((1, 2, 2, 3))
    expected = [[np.mean(np.arange(6.0) ** 2), np.mean(np.arange(6.0, 12) ** 2)]]
    np.testing.assert_allclose(squared_error(action, target), expected)


def test_the_policy_of_awac_imitates_actions_that_are_better_than_its_own():
    rng = np.random.default_rng(0)
    family, shape = distributions.distribution_for(BOX), (2, 3)
    q, value = rng.normal(size=(2, *shape)), rng.normal(size=shape)  # of two critics
    q, value = q.astype("f4"), value.astype("f4")
    means, action = rng.normal(size=(2, *shape, 1)).astype("f4")
    outputs = np.concatenate([means, np.full_like(means, np.log(0.5))], axis=-1)

    def predict_action(role, params, key, obs, action, first):
        return Scalar(jnp.asarray(q)[..., None])

    parts = off_policy_parts(predict_action, family=family)
    rows = rows_of(action)

    def loss(outputs, value):
        choice = choice_of(rows.action, outputs)
        return awac_loss(2.0, 5.0, parts, {}, -value, choice, rows)

    advantage = q.min(0) - value
    weight = np.minimum(np.exp(2 * advantage), 5)
    log_prob = -0.5 * ((action - means)[..., 0] / 0.5) ** 2 - np.log(
        0.5 * np.sqrt(2 * np.pi)
    )

    @jax.jit
    def loss_and_gradient(outputs, value):
        gradient = jax.grad(lambda value: loss(outputs, value).sum())(value)
        return loss(outputs, value), gradient

    found, to_value = loss_and_gradient(outputs, value)
    np.testing.assert_allclose(found, -weight * log_prob, rtol=1e-4)
    assert not np.any(to_value)  # the weight is held fixed
