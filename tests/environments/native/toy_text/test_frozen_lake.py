"""FrozenLake, compared with Gymnasium's table of transitions."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import MAPS

from rlcli import registry
from rlcli.environments.native.toy_text import frozen_lake as module
from rlcli.environments.native.toy_text.frozen_lake import frozen_lake, frozen_lake_8x8
from rlcli.environments.native.toy_text.tabular import CellState
from rlcli.errors import RlcliError

ODD = ("FSF", "HFS", "FFG", "GHF")  # two starts, two goals, not square
LAKES = {"4x4": MAPS["4x4"], "8x8": MAPS["8x8"], "odd": list(ODD)}


def outcomes_of(success_rate):
    other = (1 - success_rate) / 2
    return [(0, success_rate), (1, other), (2, other)]


@pytest.mark.parametrize("name", LAKES)
@pytest.mark.parametrize("success_rate", [None, 1 / 3, 0.75])
def test_every_transition_matches_gymnasium(
    gymnasium_table, native_table, tables_equal, name, success_rate
):
    slippery = success_rate is not None
    rate = success_rate if slippery else 1.0
    env = gymnasium.make(
        "FrozenLake-v1", desc=LAKES[name], is_slippery=slippery, success_rate=rate
    )
    lake = ODD if name == "odd" else name
    core = frozen_lake(lake=lake, slippery=slippery, success_rate=rate)
    noises = outcomes_of(rate) if slippery else [((), 1.0)]
    tables_equal(native_table(core, CellState, noises), gymnasium_table(env))


@pytest.mark.parametrize("slippery", [False, True])
def test_rewards_are_paid_at_the_same_steps_as_in_gymnasium(
    gymnasium_table, native_table, tables_equal, slippery
):
    schedule = (5, -2, -0.5)
    env = gymnasium.make(
        "FrozenLake-v1", is_slippery=slippery, reward_schedule=schedule
    )
    names = ("goal_reward", "hole_reward", "ice_reward")
    rewards = dict(zip(names, map(float, schedule), strict=True))
    core = frozen_lake(slippery=slippery, **rewards)
    noises = outcomes_of(1 / 3) if slippery else [((), 1.0)]
    tables_equal(native_table(core, CellState, noises), gymnasium_table(env))


def test_the_rewards_of_the_large_lake_match_gymnasium(
    gymnasium_table, native_table, tables_equal
):
    env = gymnasium.make("FrozenLake8x8-v1", reward_schedule=(1, -1, -0.25))
    core = frozen_lake_8x8(goal_reward=1.0, hole_reward=-1.0, ice_reward=-0.25)
    tables_equal(
        native_table(core, CellState, outcomes_of(1 / 3)), gymnasium_table(env)
    )


def test_rewards_can_be_traced():
    def step(goal_reward):
        core = frozen_lake(slippery=False, goal_reward=goal_reward)
        return core.step(CellState(jnp.int32(14)), 2, ())[1].reward

    rewards = jax.jit(jax.vmap(step))(np.float32([1.0, 7.0]))
    assert rewards.tolist() == [1.0, 7.0]


@pytest.mark.parametrize("rate", [1 / 3, 0.8])
def test_slips_have_their_probabilities(as_likely, rate):
    keys = jax.random.split(jax.random.key(0), 30_000)
    slips = jax.jit(jax.vmap(frozen_lake(success_rate=rate).draw))(keys)
    likely = [probability for _, probability in outcomes_of(rate)]
    assert as_likely(np.bincount(slips, minlength=3), likely)


def test_the_success_rate_can_be_traced():
    keys = jax.random.split(jax.random.key(0), 1000)

    def slips(success_rate):
        return jax.vmap(frozen_lake(success_rate=success_rate).draw)(keys)

    never, always = np.asarray(jax.jit(jax.vmap(slips))(np.float32([0.0, 1.0])))
    assert np.unique(never).tolist() == [1, 2]
    assert np.unique(always).tolist() == [0]


def test_without_slips_there_is_no_noise():
    assert frozen_lake(slippery=False).draw(jax.random.key(0)) == ()


def test_episodes_begin_on_any_start_cell(as_likely):
    keys = jax.random.split(jax.random.key(0), 5000)
    _, obs = jax.jit(jax.vmap(frozen_lake(lake=ODD).reset))(keys)
    assert as_likely(np.bincount(obs, minlength=12), np.isin(range(12), [1, 5]) / 2)
    assert obs.dtype == jnp.int32


@pytest.mark.parametrize("name", ["FrozenLake-v1", "FrozenLake8x8-v1"])
def test_the_registered_versions_match_gymnasium(
    gymnasium_table, native_table, tables_equal, name
):
    env, found = gymnasium.make(name), registry.find("environment", name)
    assert found.facts["time_limit"] == env.spec.max_episode_steps
    core = found.factory()
    assert core.observation.n == env.observation_space.n
    assert core.action == env.action_space
    tables_equal(
        native_table(core, CellState, outcomes_of(1 / 3)), gymnasium_table(env)
    )


def test_the_non_slippery_lake_is_truncated_after_20_steps():
    found = registry.find("environment", "FrozenLakeNonSlippery-v0")
    assert found.facts["time_limit"] == 20
    core = found.factory()
    state, obs = core.reset(jax.random.key(0))
    assert int(obs) == 0
    for action, cell in [(1, 4), (1, 8), (2, 9), (2, 10), (1, 14), (2, 15)]:
        state, timestep = core.step(state, action, ())
        assert int(timestep.obs) == cell
    assert bool(timestep.last)
    assert float(timestep.reward) == 1.0


@pytest.mark.parametrize(
    ("lake", "words"),
    [
        (("SFX", "FFG"), "X"),
        (("SFF", "FG"), "equal length"),
        (("FFF", "FFG"), "needs a start"),
        ((), "equal length"),
    ],
)
def test_an_invalid_map_is_refused(lake, words):
    with pytest.raises(RlcliError, match=words) as error:
        frozen_lake(lake=lake)
    assert "SFFF" in error.value.hint


def test_the_agent_is_drawn_in_its_cell():
    core = frozen_lake()
    frames = [core.render(CellState(jnp.int32(cell))) for cell in range(16)]
    assert frames[0].shape == (400, 400, 3)
    changed = np.any(frames[1] != frames[6], axis=-1)
    rows, columns = np.nonzero(changed)
    assert {(r // 100, c // 100) for r, c in zip(rows, columns, strict=True)} == {
        (0, 1),
        (1, 2),
    }


def test_holes_are_dark_and_goals_have_a_flag_on_maps_of_any_size():
    dark, green = np.array([35, 72, 99]), np.array([77, 143, 92])
    for lake in (module.SMALL, module.LARGE, ODD, ("F" * 40, "S" * 40, "H" * 40)):
        frame = frozen_lake(lake=lake).render(CellState(jnp.int32(1))).astype(int)
        side = frame.shape[0] // len(lake)
        assert frame.shape == (side * len(lake), side * len(lake[0]), 3)
        for row, letters in enumerate(lake):
            for column, letter in enumerate(letters):
                cell = frame[row * side : (row + 1) * side]
                cell = cell[:, column * side : (column + 1) * side]
                seen = [np.any(np.abs(cell - c).sum(-1) < 9) for c in (dark, green)]
                assert seen == [letter == "H", letter == "G"]
