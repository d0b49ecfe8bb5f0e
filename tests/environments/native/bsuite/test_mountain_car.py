"""bsuite's MountainCar, compared with bsuite."""

import numpy as np
import pytest
from bsuite.environments import mountain_car as original
from scipy import stats
from tiers import quick_first

from rlcli.environments.native.bsuite.mountain_car import (
    TimedMountainCarState,
    mountain_car,
)
from rlcli.environments.native.classic_control import mountain_car as classic

CHANGES = [
    {},
    {"max_steps": 50},
    {"force": 0.003},
    {"gravity": 0.001},
    {"goal_position": 0.1},
]
THEIRS = {"force": "_force", "gravity": "_gravity", "goal_position": "_goal_pos"}


def state_of(env):
    physics = np.array([env._position, env._velocity], np.float32)
    return TimedMountainCarState(
        classic.MountainCarState(physics), np.int32(env._timestep)
    )


@pytest.mark.parametrize("changed", quick_first(CHANGES))
def test_a_step_matches_bsuite_in_play_and_from_any_state(pair_class, fits, changed):
    reference = original.MountainCar(changed.get("max_steps", 1000), seed=0)
    for name, attribute in THEIRS.items():
        setattr(reference, attribute, changed.get(name, getattr(reference, attribute)))
    pair, rng = pair_class(mountain_car(**changed), state_of), np.random.default_rng(1)
    fits(pair.core, reference)
    pair.play(reference, 1, rng)
    for _ in range(2000):
        low, high = [-1.2, -0.07], [0.6, 0.07]
        place, speed = np.float32(rng.uniform(low, high))
        place = rng.choice([place, np.float32(-1.19)])
        reference._position, reference._velocity = float(place), float(speed)
        reference._timestep = int(
            rng.choice([reference._max_steps - 1, rng.integers(reference._max_steps)])
        )
        pair.act(reference, rng.integers(3))
    *_, after, (obs, _, last, _) = pair.check(rtol=1e-5, atol=1e-7)
    goal = changed.get("goal_position", 0.5)
    backward = (obs[:, 0, 0] >= goal) & (obs[:, 0, 1] < 0)
    assert np.sum(backward & last) > 10  # at the goal at any speed
    assert np.sum(last & (obs[:, 0, 0] < goal)) > 500  # at the time limit
    assert np.sum(~last) > 200
    assert np.sum((after.car.physics[:, 0] == np.float32(-1.2)) & ~last) > 50


def test_initial_states_match_bsuite(pair_class):
    pair, reference = pair_class(mountain_car(), state_of), original.MountainCar()
    state, obs = pair.resets(0, 3000)
    places = state.car.physics[:, 0].astype(np.float64)
    assert stats.kstest(places, stats.uniform(-0.6, 0.2).cdf).pvalue > 0.001
    for i in range(20):
        reference._position, reference._timestep = float(places[i]), 0
        np.testing.assert_array_equal(obs[i], reference._get_observation())
