"""CliffWalking, compared with Gymnasium's table of transitions."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import registry
from rlcli.environments.native.toy_text.cliff_walking import cliff_walking
from rlcli.environments.native.toy_text.tabular import CellState

THIRDS = [(outcome, 1 / 3) for outcome in range(3)]


@pytest.mark.parametrize("slippery", [False, True])
def test_every_transition_matches_gymnasium(
    gymnasium_table, native_table, tables_equal, slippery
):
    env = gymnasium.make("CliffWalking-v1", is_slippery=slippery)
    core = cliff_walking(slippery=slippery)
    noises = THIRDS if slippery else [((), 1.0)]
    tables_equal(native_table(core, CellState, noises), gymnasium_table(env))


@pytest.mark.parametrize("name", ["CliffWalking-v1", "CliffWalkingSlippery-v1"])
def test_the_registered_versions_match_gymnasium(
    gymnasium_table, native_table, tables_equal, name
):
    env, found = gymnasium.make(name), registry.find("environment", name)
    assert env.spec.max_episode_steps is None
    assert "time_limit" not in found.facts
    core = found.factory()
    assert core.observation.n == env.observation_space.n
    assert core.action == env.action_space
    noises = THIRDS if "Slippery" in name else [((), 1.0)]
    tables_equal(native_table(core, CellState, noises), gymnasium_table(env))


def test_the_older_name_is_an_alias():
    older = registry.find("environment", "CliffWalking-v0")
    assert older.factory is registry.find("environment", "CliffWalking-v1").factory


def test_slips_have_their_probabilities(as_likely):
    keys = jax.random.split(jax.random.key(0), 30_000)
    slips = jax.vmap(cliff_walking(slippery=True).draw)(keys)
    assert as_likely(np.bincount(slips, minlength=3), [1 / 3] * 3)
    assert cliff_walking().draw(keys[0]) == ()


def test_the_safe_path_costs_17_and_the_shortest_path_13():
    def earned(actions):
        core = cliff_walking()
        state, obs = core.reset(jax.random.key(0))
        assert int(obs) == 36
        total = 0.0
        for action in actions:
            state, timestep = core.step(state, action, ())
            total += float(timestep.reward)
        return total, bool(timestep.last)

    assert earned([0] + [1] * 11 + [2]) == (-13, True)
    assert earned([0] * 3 + [1] * 11 + [2] * 3) == (-17, True)
    assert earned([1] * 11) == (-1100, False)


def test_the_cliff_is_dark_and_the_agent_is_drawn_in_its_cell():
    frames = [
        cliff_walking().render(CellState(jnp.int32(cell))).astype(int)
        for cell in (25, 36)
    ]
    assert frames[0].shape == (240, 600, 3)
    bottom = frames[0][155, 25:600:50]
    dark = np.abs(bottom - [93, 74, 61]).sum(-1) < 9
    assert dark.tolist() == [False] + [True] * 10 + [False]
    rows, columns = np.nonzero(np.any(frames[0] != frames[1], axis=-1))
    cells = {(r // 50, c // 50) for r, c in zip(rows, columns, strict=True)}
    assert cells == {(2, 1), (3, 0)}
