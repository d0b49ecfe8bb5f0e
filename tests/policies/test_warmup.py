"""Warm-up: one policy acts first, another after it."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.policies.sampled import random, warmup_policy
from rlcli.types import Clock, Decision, Inputs

DRAWS = 2_000


def constant_policy():
    """Always takes action 0 when exploring, 1 when exploiting; counts its decisions."""

    def act(action):
        def decide(acting, obs, state, first, noise):
            taken = jnp.full(DRAWS, action)
            extras = {"log_prob": jnp.zeros(DRAWS), "mark": jnp.ones(DRAWS)}
            return Decision(taken, extras), state + 1

        return decide

    ours = random(gymnasium.spaces.Discrete(2))
    return ours._replace(
        initial=lambda batch: jnp.int32(0), explore=act(0), exploit=act(1)
    )


@functools.partial(jax.jit, static_argnums=0)
def play(how, is_warmup):
    other = random(gymnasium.spaces.Discrete(4))
    policy = warmup_policy(constant_policy(), other, is_warmup)
    noise = policy.draw(jax.random.key(0), DRAWS)
    obs, first = jnp.zeros((DRAWS, 1)), jnp.ones(DRAWS)
    select = {"explore": policy.explore, "exploit": policy.exploit}[how]
    return select((), obs, policy.initial(DRAWS), first, noise)


@pytest.mark.parametrize("is_warmup", [True, False])
def test_the_warmup_policy_acts_during_warmup(is_warmup):
    decision, state = jax.device_get(play("explore", is_warmup))
    assert set(decision.action) == ({0, 1, 2, 3} if is_warmup else {0})
    expected_log_prob = np.log(0.25) if is_warmup else 0.0
    np.testing.assert_allclose(
        decision.extras["log_prob"], expected_log_prob, rtol=1e-6
    )
    assert np.all(decision.extras["mark"] == 1)  # the same extras from either policy
    assert state == 1  # the state advances during warm-up


def test_evaluation_uses_the_learned_policy():
    decision, _ = play("exploit", True)
    assert np.all(np.asarray(decision.action) == 1)


def test_a_run_warms_up_until_learning_starts():
    setup = build(
        recipe.load_recipe(
            {
                "environment": {"name": "probe-reward-depends-on-action"}
                | {"num_envs": 1000},
                "network": "table",
                "policy": {"name": "epsilon_greedy", "epsilon": 0.0},
                "replay": {"name": "uniform", "capacity": 10_000},
                "updater": "q_learning",
                "train": {"steps": 100_000, "start": 5_000, "warmup": "random"},
            }
        )
    )
    best = {"q": {"linear": {"w": np.array([[1, 2]], "f4")}}}  # always action 1

    @jax.jit
    def explore(steps):
        policy = setup.at(Inputs(Clock.zero()._replace(steps=steps)))[1].policy
        noise = policy.draw(jax.random.key(1), 1000)
        state, first = policy.initial(1000), jnp.zeros(1000, bool)
        return policy.explore(best, jnp.ones((1000, 1)), state, first, noise)[0]

    for steps, expected in [(4_999, 0.5), (5_000, 1.0)]:
        action = np.asarray(explore(np.float32(steps)).action)
        assert np.mean(action) == pytest.approx(expected, abs=0.07)
