"""Probes: their values, by playing every sequence of actions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
    total, seen, discount, ended = 0.0, [float(obs[0])], 1.0, False
    for action in actions:
        assert not ended
        state, timestep = core.step(state, action, ())
        total += discount * float(timestep.reward)
        discount *= GAMMA * float(timestep.discount)
        ended = bool(timestep.last)
        seen.append(float(timestep.obs[0]))
        assert ended == (float(timestep.discount) == 0.0)
    return total, seen[:-1], ended


def probe(name, **options):
    return registry.find("environment", f"probe-{name}").factory(**options)


@pytest.mark.parametrize(
    ("name", "cue", "actions", "expected", "seen"),
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
def test_a_probe_is_worth_what_its_docstring_says(name, cue, actions, expected, seen):
    total, shown, ended = value(probe(name), cue, actions)
    assert total == pytest.approx(expected)
    assert shown == seen
    assert ended


def test_cues_are_fair():
    core = probe("reward-depends-on-observation")
    _, obs = jax.vmap(core.reset)(jax.random.split(jax.random.key(0), 4000))
    assert np.unique(obs).tolist() == [-1.0, 1.0]
    assert abs(np.mean(obs)) < 0.06


def test_truncation_never_terminates_but_has_a_time_limit():
    total, shown, ended = value(probe("truncation"), 1, [0] * 300)
    assert total == pytest.approx(1 / (1 - GAMMA))
    assert set(shown) == {0.0}
    assert not ended
    assert registry.find("environment", "probe-truncation").facts["time_limit"] == 5


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_memory_is_worth_as_much_as_it_is_needed(delay):
    core = probe("needs-memory", delay=delay)
    plans = list(itertools.product([0, 1], repeat=delay + 1))
    values = {cue: [value(core, cue, plan)[0] for plan in plans] for cue in (-1, 1)}
    assert max(values[-1]) == max(values[1]) == pytest.approx(GAMMA**delay)
    blind = np.mean([values[-1], values[1]], axis=0)  # one plan whatever was shown
    np.testing.assert_allclose(blind, 0.0, atol=1e-6)
