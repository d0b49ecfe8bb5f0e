"""Taxi, compared with Gymnasium's table of transitions."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import registry
from rlcli.environments.native.toy_text.taxi import TaxiState, taxi

NUMBERS, ACTIONS = 500, 6


def is_settled(number):
    return TaxiState(number, False)


@pytest.mark.parametrize("chance", [None, 0.8, 0.5])
def test_every_transition_matches_gymnasium(
    gymnasium_table, native_table, tables_equal, chance
):
    rain = {} if chance is None else {"is_rainy": True, "rainy_probability": chance}
    env, core = gymnasium.make("Taxi-v4", **rain), taxi(**rain)
    noises = [((), 1.0)]
    if chance is not None:
        other = (1 - chance) / 2
        noises = [((0,), chance), ((1,), other), ((2,), other)]
    tables_equal(native_table(core, is_settled, noises), gymnasium_table(env))


class Script:
    """Replaces Gymnasium's generator: returns scripted values."""

    def __init__(self, uniform, choice):
        self.uniform, self.choice_of = uniform, choice

    def random(self):
        return self.uniform

    def choice(self, options):
        return options[self.choice_of]


@functools.cache
def gymnasiums_fickle_steps(outcome, choice):
    """Observation, reward, end and fickleness after a step of each state and action."""
    env = gymnasium.make("Taxi-v4", is_rainy=True, fickle_passenger=True).unwrapped
    env.reset(seed=0)
    env._np_random = Script((0.4, 0.85, 0.95)[outcome], choice)
    found = []
    for number in range(NUMBERS):
        for action in range(ACTIONS):
            env.s, env.fickle_step = number, True
            found.append((*env.step(action)[:3], env.fickle_step))
    return np.array(found)


@pytest.mark.parametrize("outcome", [0, 1, 2])
def test_a_fickle_passenger_changes_destination_as_in_gymnasium(outcome):
    core = taxi(is_rainy=True, fickle_passenger=True)
    number, action = (each.ravel() for each in np.mgrid[:NUMBERS, :ACTIONS])
    state = TaxiState(number, np.ones(len(number), bool))
    step = jax.jit(jax.vmap(core.step, (0, 0, None)))
    expected = [gymnasiums_fickle_steps(outcome, choice) for choice in range(3)]
    found = []
    for other in (1, 2, 3):
        after, timestep = jax.device_get(step(state, action, (outcome, other)))
        assert np.array_equal(after.number, timestep.obs)
        found.append(
            np.stack([timestep.obs, timestep.reward, timestep.last, after.fickle], 1)
        )
    # Each of the three other destinations appears once, in any order.
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(expected, axis=0))
    changed = ~after.fickle
    assert 100 < np.sum(changed) < 400
    assert np.all(number[changed] // 4 % 5 == 4)


def test_the_destination_changes_at_most_once():
    core = taxi(fickle_passenger=True)
    aboard = TaxiState(jnp.int32((12 * 5 + 4) * 4 + 1), jnp.asarray(True))
    after, timestep = core.step(aboard, 0, (2,))
    assert int(timestep.obs) == (17 * 5 + 4) * 4 + 3
    assert not bool(after.fickle)
    _, timestep = core.step(after, 1, (2,))
    assert int(timestep.obs) == (12 * 5 + 4) * 4 + 3


def test_rain_and_new_destinations_have_their_probabilities(as_likely):
    core = taxi(is_rainy=True, fickle_passenger=True)
    keys = jax.random.split(jax.random.key(0), 30_000)
    turn, other = jax.device_get(jax.jit(jax.vmap(core.draw))(keys))
    counts = np.bincount(4 * turn + other, minlength=12).reshape(3, 4)
    probabilities = np.outer([0.8, 0.1, 0.1], [0, 1 / 3, 1 / 3, 1 / 3])
    assert as_likely(counts.ravel(), probabilities.ravel())
    assert taxi().draw(keys[0]) == ()


def test_initial_states_match_gymnasium(as_likely):
    keys = jax.random.split(jax.random.key(1), 60_000)
    core = taxi(fickle_passenger=True, fickle_probability=0.3)
    state, obs = jax.jit(jax.vmap(core.reset))(keys)
    env = gymnasium.make("Taxi-v4").unwrapped
    counts = np.bincount(obs, minlength=NUMBERS)
    assert as_likely(counts, env.initial_state_distrib)
    assert as_likely(np.bincount(state.fickle), [0.7, 0.3])
    plain, _ = jax.jit(jax.vmap(taxi().reset))(keys)
    assert not np.any(plain.fickle)


@pytest.mark.parametrize("name", ["Taxi-v3", "Taxi-v4"])
def test_spaces_and_time_limit_match_gymnasium(name):
    env = gymnasium.make("Taxi-v4")
    found = registry.find("environment", name)
    assert found.factory is taxi
    assert found.facts["time_limit"] == env.spec.max_episode_steps
    assert taxi().observation.n == env.observation_space.n
    assert taxi().action == env.action_space


def test_taxi_passenger_and_destination_are_drawn_in_their_cells():
    def frame(cell, passenger, destination):
        number = jnp.int32((cell * 5 + passenger) * 4 + destination)
        return taxi().render(is_settled(number)).astype(int)

    def centre(frame, colour):
        rows, columns = np.nonzero(np.abs(frame[:420] - colour).sum(-1) < 9)
        return (int(columns.mean()) - 10) // 80, (int(rows.mean()) - 10) // 80

    yellow, flag = np.array([242, 182, 50]), np.array([77, 143, 92])
    for cell in (0, 7, 24):
        assert centre(frame(cell, 1, 2), yellow) == (cell % 5, cell // 5)
    for destination, place in enumerate([(0, 0), (4, 0), (0, 4), (3, 4)]):
        assert centre(frame(12, 1, destination), flag) == place
    waiting = np.nonzero(np.any(frame(12, 0, 3) != frame(12, 1, 3), axis=-1))
    assert waiting[0].max() < 100
    assert set((waiting[1] - 10) // 80) == {0, 4}
