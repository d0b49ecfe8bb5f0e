"""Probes: their values, from playing every sequence of actions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rlcli import registry

GAMMA = 0.9


def start(core, cue):
    """A state whose cue is `cue`, and its observation."""
    for seed in range(50):
        state, obs = core.reset(jax.random.key(seed))
        if float(state.cue) == cue:
            return state, obs
    raise AssertionError(f"no cue {cue} in 50 resets")


def value(core, cue, actions):
    """Discounted return, observations, and whether the last action ended it."""
    state, obs = start(core, cue)
    total, observations, discount, ended = 0.0, [float(obs[0])], 1.0, False
    for action in actions:
        assert not ended
        state, timestep = core.step(state, action, ())
        total += discount * float(timestep.reward)
        discount *= GAMMA * float(timestep.discount)
        ended = bool(timestep.last)
        observations.append(float(timestep.obs[0]))
        assert ended == (float(timestep.discount) == 0.0)
    return total, observations[:-1], ended


def probe(name, **options):
    return registry.find("environment", f"probe-{name}").factory(**options)


@pytest.mark.parametrize(
    ("name", "cue", "actions", "expected", "observations"),
    [
        ("constant-reward", 1, [0], 1, [0]),
        ("constant-reward", -1, [1], 1, [0]),
        ("reward-depends-on-observation", 1, [0], 1, [1]),
        ("reward-depends-on-observation", -1, [1], -1, [-1]),
        ("two-steps", 1, [0, 1], GAMMA, [0, 1]),
        ("two-steps", -1, [1, 0], GAMMA, [0, 1]),
        ("reward-depends-on-action", 1, [0], -1, [0]),
        ("reward-depends-on-action", -1, [1], 1, [0]),
        ("needs-memory", 1, [0, 1], GAMMA, [1, 0]),
        ("needs-memory", 1, [1, 0], -GAMMA, [1, 0]),
        ("needs-memory", -1, [1, 0], GAMMA, [-1, 0]),
        ("needs-memory", -1, [0, 1], -GAMMA, [-1, 0]),
        ("continuous-action", 1, [jnp.array([0.5])], 0, [0]),
        ("continuous-action", -1, [jnp.array([-1.0])], -2.25, [0]),
    ],
)
def test_a_probe_has_the_values_of_its_docstring(
    name, cue, actions, expected, observations
):
    total, observed, ended = value(probe(name), cue, actions)
    assert total == pytest.approx(expected)
    assert observed == observations
    assert ended


def test_both_cues_are_equally_likely():
    core = probe("reward-depends-on-observation")
    _, obs = jax.vmap(core.reset)(jax.random.split(jax.random.key(0), 4000))
    assert np.unique(obs).tolist() == [-1.0, 1.0]
    assert stats.binomtest(int(np.sum(obs > 0)), 4000).pvalue > 0.001


def test_truncation_never_terminates_but_has_a_time_limit():
    total, observed, ended = value(probe("truncation"), 1, [0] * 300)
    assert total == pytest.approx(1 / (1 - GAMMA))
    assert set(observed) == {0.0}
    assert not ended
    assert registry.find("environment", "probe-truncation").facts["time_limit"] == 5


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_only_policies_with_memory_have_a_value_above_zero(delay):
    core = probe("needs-memory", delay=delay)
    plans = list(itertools.product([0, 1], repeat=delay + 1))
    values = {cue: [value(core, cue, plan)[0] for plan in plans] for cue in (-1, 1)}
    assert max(values[-1]) == max(values[1]) == pytest.approx(GAMMA**delay)
    blind = np.mean([values[-1], values[1]], axis=0)  # the same plan for both cues
    np.testing.assert_allclose(blind, 0.0, atol=1e-6)
