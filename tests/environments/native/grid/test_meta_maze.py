"""MetaMaze, compared with loops over its cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick_first

from rlcli import registry
from rlcli.environments.native.grid import MetaMazeState, meta_maze
from rlcli.errors import RlcliError

MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]
SIZES = [(3, 3), (7, 3), (9, 3), (9, 5)]
# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}


def is_free(size, row, column):
    """Cells are counted from 0, inside the outer walls."""
    if not (0 <= row < size and 0 <= column < size):
        return False
    middle = row == column == size // 2
    return middle or not (row % 2 == 1 and column % 2 == 1)


def cells(size):
    every = [(r, c) for r in range(size) for c in range(size)]
    return [cell for cell in every if is_free(size, *cell)]


def number(size, view, cell):
    edge = view // 2
    return (cell[0] + edge) * (size + 2 * edge) + cell[1] + edge


@pytest.mark.parametrize(("size", "view"), quick_first(SIZES, quick=2))
def test_every_step_follows_the_rules(size, view):
    free = cells(size)
    aims = [free[0], free[-1], free[len(free) // 3]]
    cases = [(c, g, a) for c in free for g in aims for a in range(4) if c != g]
    cell, goal = (
        np.array([number(size, view, case[i]) for case in cases], np.int32)
        for i in range(2)
    )
    action = np.array([case[2] for case in cases])
    uniform = np.linspace(0, 1, len(cases), endpoint=False, dtype=np.float32)
    core = meta_maze(size=size, view=view, wall_reward=-0.5)
    step = jax.jit(jax.vmap(core.step), compiler_options=FAST_COMPILE)
    taken = step(MetaMazeState(cell, goal), action, uniform)
    after, timestep = jax.tree.map(np.asarray, taken)
    places = {number(size, view, each): each for each in free}
    for i, (here, aim, way) in enumerate(cases):
        ahead = here[0] + MOVES[way][0], here[1] + MOVES[way][1]
        bumps = not is_free(size, *ahead)
        now = places[int(after.cell[i])]
        found = ahead == aim
        assert now != aim
        if not found:
            assert now == (here if bumps else ahead)
        assert float(timestep.reward[i]) == 10.0 * found - 0.5 * bumps
        around = range(-(view // 2), view // 2 + 1)
        seen = [
            [not is_free(size, now[0] + r, now[1] + c) for c in around] for r in around
        ]
        np.testing.assert_array_equal(timestep.obs[i], seen)
    np.testing.assert_array_equal(after.goal, goal)


def test_reaching_the_reward_moves_the_agent_to_any_other_cell(as_likely):
    goal = number(9, 3, (0, 0))
    state = MetaMazeState(np.int32(number(9, 3, (0, 1))), np.int32(goal))
    core = meta_maze()
    step = jax.jit(
        jax.vmap(lambda key: core.step(state, 3, core.draw(key))),
        compiler_options=FAST_COMPILE,
    )
    after, timestep = step(jax.random.split(jax.random.key(0), 20_000))
    others = [number(9, 3, cell) for cell in cells(9) if cell != (0, 0)]
    likely = np.bincount(others, minlength=121) / len(others)
    assert as_likely(np.bincount(after.cell, minlength=121), likely)
    np.testing.assert_array_equal(timestep.reward, 10.0)


def test_the_episode_never_terminates_and_the_reward_stays():
    """In gymnax an episode ends if the agent is moved back onto the reward."""
    core = meta_maze(size=3)
    keys = jax.random.split(jax.random.key(2), 200)

    def episode(key):
        begin, play = jax.random.split(key)

        def step(state, key):
            way, key = jax.random.split(key)
            action = jax.random.randint(way, (), 0, 4)
            return core.step(state, action, core.draw(key))

        return jax.lax.scan(step, core.reset(begin)[0], jax.random.split(play, 200))[1]

    play = jax.jit(jax.vmap(episode), compiler_options=FAST_COMPILE)
    timestep = jax.device_get(play(keys))
    assert not np.any(timestep.last)
    np.testing.assert_array_equal(timestep.discount, 1.0)
    assert np.min(np.sum(timestep.reward == 10, axis=1)) > 1
    assert registry.find("environment", "MetaMaze-v0").facts["time_limit"] == 200


@pytest.mark.parametrize(("size", "view"), [(9, 3), (7, 5)])
def test_episodes_begin_in_the_middle_with_the_reward_elsewhere(as_likely, size, view):
    """In gymnax the middle is in a wall for a wider view or a maze of size 7."""
    keys = jax.random.split(jax.random.key(0), 20_000)
    state, _ = jax.jit(
        jax.vmap(meta_maze(size=size, view=view).reset), compiler_options=FAST_COMPILE
    )(keys)
    middle = (size // 2, size // 2)
    assert np.unique(state.cell).tolist() == [number(size, view, middle)]
    others = [number(size, view, cell) for cell in cells(size) if cell != middle]
    likely = np.bincount(others) / len(others)
    assert as_likely(np.bincount(state.goal, minlength=len(likely)), likely)


@pytest.mark.parametrize("option", ["size", "view"])
def test_an_even_size_is_refused(option):
    with pytest.raises(RlcliError, match=f"`{option}`.*odd"):
        meta_maze(**{option: 4})


def test_the_observed_cells_are_drawn_lighter():
    core = meta_maze()
    state = MetaMazeState(
        jnp.int32(number(9, 3, (4, 4))), jnp.int32(number(9, 3, (0, 0)))
    )
    frame = core.render(state)
    corners = frame[4 : 11 * 32 : 32, 4 : 11 * 32 : 32]
    colours = {tuple(c) for c in corners[4:7, 4:7].reshape(-1, 3).tolist()}
    assert colours == {(253, 243, 207), (138, 147, 160)}
    assert not np.any(np.all(corners[:4] == [253, 243, 207], axis=-1))
