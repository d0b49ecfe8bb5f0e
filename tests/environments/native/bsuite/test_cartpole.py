"""The cart-pole tasks, compared with bsuite."""

import jax
import numpy as np
import pytest
from bsuite.environments import cartpole as original
from bsuite.experiments.cartpole_swingup import cartpole_swingup as swingup
from scipy import stats
from tiers import quick_first

from rlcli.environments.native.bsuite.cartpole import (
    CartpoleState,
    cartpole,
    cartpole_swingup,
)

TASKS = {
    "balance": (cartpole, original.Cartpole),
    "swingup": (cartpole_swingup, swingup.CartpoleSwingup),
}
BOTH = pytest.mark.parametrize("task", TASKS)
CHANGES = [
    ("balance", {}),
    ("balance", {"height_threshold": 0.3, "x_threshold": 1.5}),
    ("balance", {"timescale": 0.02, "max_time": 4.01}),
    ("swingup", {}),
    ("swingup", {"height_threshold": 0.9, "x_threshold": 1.5, "move_cost": 0.3}),
    ("swingup", {"theta_dot_threshold": 3.0, "x_reward_threshold": 0.4}),
]
BODY = {
    "gravity": ("gravity", 5.0),
    "masscart": ("mass_cart", 3.0),
    "masspole": ("mass_pole", 0.7),
    "length": ("length", 1.3),
    "force_magnitude": ("force_mag", 4.0),
}


def state_of(env):
    x, x_dot, theta, theta_dot, elapsed = env._state
    theta -= 2 * np.pi * np.round(theta / (2 * np.pi))
    physics = np.array([x, x_dot, theta, theta_dot], np.float32)
    return CartpoleState(physics, np.int32(round(elapsed / env._timescale)))


def wrap_state(state):
    """The state with the angle as sine and cosine, without the jump at π."""
    x, x_dot, theta, theta_dot = np.moveaxis(np.asarray(state.physics), -1, 0)
    return x, x_dot, np.sin(theta), np.cos(theta), theta_dot, state.time


def bsuite_time(env, steps):
    """The time after a number of steps, summed as in bsuite."""
    return np.cumsum([0.0, *[env._timescale] * steps])[-1]


def anywhere(rng, reference):
    """Any state and time, often near upright."""
    limit = reference._x_threshold
    angle = rng.choice([rng.uniform(-np.pi, np.pi), rng.normal() * 0.6])
    physics = np.array(
        [rng.uniform(-1, 1) * limit, rng.normal() * 3, angle, rng.normal() * 2]
    )
    last = int(reference._max_time / reference._timescale)
    steps = rng.choice([last - 1, last, rng.integers(last)])
    # float32 values, so that both start from exactly the same state.
    numbers = (float(each) for each in physics.astype(np.float32))
    reference._state = original.CartpoleState(*numbers, bsuite_time(reference, steps))
    reference._episode_return = 0.0


@pytest.mark.parametrize(("task", "changed"), quick_first(CHANGES))
def test_a_step_matches_bsuite_in_play_and_from_any_state(
    pair_class, fits, task, changed
):
    make, reference = TASKS[task]
    reference, rng = reference(**changed, seed=0), np.random.default_rng(1)
    pair = pair_class(make(**changed), state_of, wrap_state)
    fits(pair.core, reference)
    pair.play(reference, 3 if task == "balance" else 1, rng)
    for _ in range(1200):
        anywhere(rng, reference)
        pair.act(reference, rng.integers(3))
    *_, (_, reward, last, gained) = pair.check(rtol=1e-5, atol=2e-6)
    assert 50 < np.sum(reward > 0) < len(reward) - 50
    assert 20 < np.sum(last) < len(last)
    np.testing.assert_allclose(gained["raw_return"], reward, atol=1e-9)


@pytest.mark.parametrize("name", quick_first(BODY, quick=2))
def test_parameters_that_are_constants_in_bsuite_match_it(pair_class, name):
    reference, rng = original.Cartpole(), np.random.default_rng(2)
    other, value = BODY[name]
    reference._cartpole_config = reference._cartpole_config._replace(**{other: value})
    pair = pair_class(cartpole(**{name: value}), state_of, wrap_state)
    for _ in range(300):
        anywhere(rng, reference)
        pair.act(reference, rng.integers(3))
    before, action, _, after, _ = pair.check(rtol=1e-5, atol=2e-6)
    _, unchanged = pair_class(cartpole(), None).step(before, action, ())
    speed = np.asarray(unchanged.obs)[:, 0, 1] * reference._x_threshold
    assert np.mean(np.abs(speed - after.physics[:, 1]) > 1e-5) > 0.4


def test_an_idle_episode_ends_at_the_same_step_as_in_bsuite(pair_class):
    # Ten seconds are 1000 steps of 0.01 s; the next step exceeds the limit.
    reference = swingup.CartpoleSwingup(init_range=0.0)
    pair = pair_class(cartpole_swingup(init_range=0.0), state_of, wrap_state)
    timestep = reference.reset()
    while not timestep.last():
        timestep = pair.act(reference, 1)
    *_, (_, _, last, _) = pair.check(rtol=1e-5, atol=2e-6)
    assert len(last) == 1001


@BOTH
def test_initial_states_match_bsuite(pair_class, task):
    make, reference = TASKS[task]
    pair, reference = pair_class(make(), state_of), reference(seed=1)
    state, obs = pair.resets(0, 3000)
    middle = 0.0 if task == "balance" else np.pi
    physics = state.physics.astype(np.float64) - [0, 0, middle, 0]
    physics[:, 2] -= 2 * np.pi * np.round(physics[:, 2] / (2 * np.pi))
    for column in physics.T:
        assert stats.kstest(column, stats.uniform(-0.05, 0.1).cdf).pvalue > 0.001
    for i in range(100):
        numbers = (float(each) for each in state.physics[i])
        reference._state = original.CartpoleState(*numbers, 0.0)
        np.testing.assert_allclose(obs[i], reference.observation, rtol=1e-6, atol=1e-6)


@BOTH
def test_the_pole_is_drawn_upright_or_hanging(task):
    def wood(angle):
        physics = np.float32([0.0, 0.0, angle, 0.0])
        frame = TASKS[task][0]().render(CartpoleState(physics, np.int32(0)))
        rows, _ = np.nonzero(np.abs(frame.astype(int) - [208, 140, 74]).sum(-1) < 30)
        return rows.mean()

    assert wood(0.0) < 274 < wood(np.pi)


def test_the_angle_keeps_its_precision_near_upright(pair_class):
    # In [0, 2π), as in bsuite with float64, a float32 angle would lose half its digits.
    reference = original.Cartpole()
    pair = pair_class(cartpole(), state_of, wrap_state)
    for tilt in np.float32([-1e-3, -1e-5, 1e-5]):
        reference._state = original.CartpoleState(0.0, 0.0, float(tilt), 0.0, 0.0)
        pair.act(reference, 1)
    *_, (obs, _, _, _) = pair.check(rtol=1e-5, atol=1e-9)
    assert np.all(np.abs(obs[:, 0, 2]) < 2e-3)


def test_parameters_can_be_traced():
    def reward(height):
        core = cartpole(height_threshold=height)
        state = CartpoleState(np.float32([0.0, 0.0, 1.0, 0.0]), np.int32(0))
        return core.step(state, np.int32(1), ())[1].reward

    rewards = jax.jit(jax.vmap(reward))(np.float32([0.8, 0.5]))
    assert rewards.tolist() == [0.0, 1.0]
