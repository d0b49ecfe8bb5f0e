"""The fixed point of each rule with each head, in a small environment."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlcli.networks.torsos import mlp
from rlcli.types import Clock, Transition

STATES, ACTIONS, EPSILON = 6, 4, 0.2
TEMPERATURE, ALPHA = 0.3, 0.5
RNG = np.random.default_rng(0)
NEXT = RNG.integers(0, STATES, (STATES, ACTIONS))
REWARD = RNG.uniform(-1, 1, (STATES, ACTIONS))
DISCOUNT = RNG.choice([0.0, 0.7], (STATES, ACTIONS), p=[0.3, 0.7])
RULES = {
    **{name: {} for name in ("q_learning", "double_q_learning", "sarsa")},
    **{name: {} for name in ("expected_sarsa", "clipped_double_q_learning")},
    "soft_q_learning": {"temperature": TEMPERATURE},
    "soft_clipped_double_q_learning": {"temperature": TEMPERATURE},
    "munchausen": {"temperature": TEMPERATURE, "alpha": ALPHA},
}
HEADS = {
    "scalar": {},
    "categorical": {"atoms": 21, "low": -4.0, "high": 4.0},
    "quantile": {"quantiles": 15},
    "implicit_quantile": {"samples": 8, "target_samples": 8, "policy_samples": 16},
}
FAST = [("munchausen", "scalar"), ("double_q_learning", "quantile")]
FAST += [("expected_sarsa", "categorical")]


def fixed_point(name):
    """The q that satisfies the rule's equation, `[STATES, ACTIONS]`."""
    q = np.zeros((STATES, ACTIONS))
    for _ in range(300):
        best = q == q.max(-1, keepdims=True)
        probability = EPSILON / ACTIONS + (1 - EPSILON) * best
        soft = TEMPERATURE * np.log(np.exp(q / TEMPERATURE).sum(-1))
        v, bonus = q.max(-1), 0
        if "sarsa" in name:
            v = (probability * q).sum(-1)
        if "soft" in name or name == "munchausen":
            v = soft
        if name == "munchausen":
            bonus = ALPHA * np.maximum(q - soft[:, None], -1.0)
        q = REWARD + bonus + DISCOUNT * v[NEXT]
    return q


def every_row():
    """Each action in each state, once: `[1, STATES · ACTIONS]`."""
    state, action = (grid.reshape(1, -1) for grid in np.mgrid[:STATES, :ACTIONS])
    flag = np.zeros(state.shape, bool)
    return Transition(
        obs=state,
        action=action,
        reward=REWARD[state, action].astype("f4"),
        discount=DISCOUNT[state, action].astype("f4"),
        next_obs=NEXT[state, action],
        first=flag,
        last=flag,
        extras={},
    )


def learn_values(ours, steps):
    """The action values after `steps` updates with every row."""
    rows = every_row()
    weight = jnp.ones(rows.reward.shape)

    def step(state, key):
        return ours.update(state, rows, weight, Clock.zero(), key)[0], None

    @jax.jit
    def run(key):
        state = ours.init(key)
        keys = jax.random.split(jax.random.key(1), steps)
        state, _ = jax.lax.scan(step, state, keys)
        return ours.estimate(state, rows, jax.random.key(0)).q_tm1

    return np.asarray(run(jax.random.key(0))).reshape(STATES, ACTIONS)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        pytest.param(name, head, marks=() if (name, head) in FAST else pytest.mark.slow)
        for name in RULES
        for head in HEADS
    ],
)
def test_learned_values_satisfy_the_equation_of_the_rule(name, head, tabular):
    # A table gives implicit quantiles only one feature per state, which is too few.
    torso = mlp(layers=[32]) if head == "implicit_quantile" else None
    steps = 4_000 if torso else 1_000
    rate = optax.cosine_decay_schedule(0.01 if torso else 0.1, steps)
    ours = tabular(
        name,
        {"name": head, **HEADS[head]},
        torso=torso,
        optimizer=optax.adam(rate),
        target={"polyak": 0.2},
        **RULES[name],
    )
    found, expected = learn_values(ours.whole, steps), fixed_point(name)
    # The mean of quantiles of a mixture, or of sampled ones, is approximate.
    wide = "quantile" in head or name == "sarsa"
    np.testing.assert_allclose(found, expected, atol=0.25 if wide else 0.03)
