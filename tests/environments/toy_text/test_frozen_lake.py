"""FrozenLake, beside Gymnasium's own table of transitions."""

from collections import defaultdict

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import MAPS

from rlcli import registry
from rlcli.environments.toy_text.frozen_lake import FrozenLakeState, frozen_lake
from rlcli.errors import RlcliError

ODD = ("FSF", "HFS", "FFG", "GHF")  # two starts, two goals, not square
LAKES = {"4x4": tuple(MAPS["4x4"]), "8x8": tuple(MAPS["8x8"]), "odd": ODD}


def table(lake, *, slippery):
    """Gymnasium's: {(cell, action): {(next, reward, terminated): probability}}."""
    env = gymnasium.make("FrozenLake-v1", desc=list(lake), is_slippery=slippery)
    merged = {}
    for cell, actions in env.unwrapped.P.items():
        for action, outcomes in actions.items():
            merged[cell, action] = defaultdict(float)
            for probability, after, reward, terminated in outcomes:
                outcome = (after, float(reward), bool(terminated))
                merged[cell, action][outcome] += probability
    return merged


def outcomes(core, slips):
    """The same table, from our step with every slip there is."""
    cells = core.observation.n
    cell, action = (each.ravel() for each in np.mgrid[:cells, :4])
    found = {(c, a): defaultdict(float) for c in range(cells) for a in range(4)}
    for slip in slips:
        step = jax.vmap(lambda c, a, slip=slip: core.step(FrozenLakeState(c), a, slip))
        after, timestep = step(cell.astype(np.int32), action)
        np.testing.assert_array_equal(timestep.discount, 1.0 - timestep.last)
        np.testing.assert_array_equal(timestep.next_obs, after.cell)
        for i, key in enumerate(zip(cell.tolist(), action.tolist(), strict=True)):
            outcome = (int(after.cell[i]), float(timestep.reward[i]))
            found[key][(*outcome, bool(timestep.last[i]))] += 1 / len(slips)
    return found


@pytest.mark.parametrize("name", LAKES)
@pytest.mark.parametrize("slippery", [False, True])
def test_every_transition_is_gymnasiums(name, slippery):
    core = frozen_lake(lake=LAKES[name], slippery=slippery)
    ours = outcomes(core, (-1, 0, 1) if slippery else ((),))
    theirs = table(LAKES[name], slippery=slippery)
    assert ours.keys() == theirs.keys()
    for key, expected in theirs.items():
        assert ours[key] == pytest.approx(expected)


def test_slips_to_either_side_are_as_likely_as_none():
    keys = jax.random.split(jax.random.key(0), 30_000)
    slips = jax.vmap(frozen_lake(slippery=True).draw)(keys)
    values, counts = np.unique(slips, return_counts=True)
    assert values.tolist() == [-1, 0, 1]
    np.testing.assert_allclose(counts / 30_000, 1 / 3, atol=0.01)


def test_without_slips_nothing_is_drawn():
    assert frozen_lake().draw(jax.random.key(0)) == ()


def test_episodes_begin_on_any_start():
    keys = jax.random.split(jax.random.key(0), 1000)
    _, obs = jax.vmap(frozen_lake(lake=ODD).reset)(keys)
    values, counts = np.unique(obs, return_counts=True)
    assert values.tolist() == [1, 5]
    np.testing.assert_allclose(counts / 1000, 0.5, atol=0.06)
    assert obs.dtype == jnp.int32


def test_the_registered_one_is_gymnasiums_4x4_cut_after_20_steps():
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
        (("SFF", "FG"), "one length"),
        (("FFF", "FFG"), "no"),
        ((), "one length"),
    ],
)
def test_a_map_that_is_none_is_refused(lake, words):
    with pytest.raises(RlcliError, match=words) as error:
        frozen_lake(lake=lake)
    assert "SFFF" in error.value.hint


def test_the_walker_is_drawn_in_its_cell():
    core = frozen_lake()
    frames = [core.render(FrozenLakeState(jnp.int32(cell))) for cell in range(16)]
    assert frames[0].shape == (400, 400, 3)
    changed = np.any(frames[1] != frames[6], axis=-1)
    rows, columns = np.nonzero(changed)
    assert {(r // 100, c // 100) for r, c in zip(rows, columns, strict=True)} == {
        (0, 1),
        (1, 2),
    }
