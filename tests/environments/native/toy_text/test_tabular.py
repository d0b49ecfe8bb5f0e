"""Tables: packed entries are read back, and outcomes have their probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.environments.native.toy_text import tabular

GRID = (np.arange(12_000, dtype=np.float32) + 0.5) / 12_000


@pytest.mark.parametrize("rewards", [1, 2, 3, 4, 5])
def test_the_lookup_returns_every_entry_of_a_world(rewards):
    rng = np.random.default_rng(rewards)
    shape = (50, 3, 2)
    after, worth = rng.integers(0, 50, shape), rng.integers(0, rewards, shape)
    ends = rng.integers(0, 2, shape) == 1
    worths = rng.normal(size=rewards).astype(np.float32)
    read = tabular.outcome_lookup(tabular.World(after, worth, ends), worths.tolist())
    found = jax.vmap(read)(*(each.ravel() for each in np.indices(shape)))
    np.testing.assert_array_equal(found[0], after.ravel())
    np.testing.assert_array_equal(found[1], worths[worth].ravel())
    np.testing.assert_array_equal(found[2], ends.ravel())
    assert found[0].dtype == jnp.int32
    assert found[1].dtype == jnp.float32


@pytest.mark.parametrize("likely", [0.0, 1 / 3, 0.8, 1.0])
def test_outcomes_have_their_probabilities(likely):
    share = np.bincount(tabular.choose_outcome(GRID, likely), minlength=3) / len(GRID)
    other = (1 - likely) / 2
    np.testing.assert_allclose(share, [likely, other, other], atol=1e-3)


@pytest.mark.parametrize("n", [1, 2, 3, 300])
def test_choices_are_uniform_over_the_options(n):
    options = np.arange(7, 7 + n, dtype=np.int32)
    chosen = np.broadcast_to(tabular.choose_uniformly(GRID, options), GRID.shape)
    assert np.bincount(chosen)[7:].tolist() == [len(GRID) // n] * n
    last = np.nextafter(np.float32(1), np.float32(0))
    assert int(tabular.choose_uniformly(last, options)) == 6 + n


def test_moves_stop_at_the_edge():
    moves = tabular.grid_moves(2, 3, [(-1, 0), (0, 1), (1, 0), (0, -1)])
    expected = [[0, 1, 3, 0], [1, 2, 4, 0], [2, 2, 5, 1]]
    expected += [[0, 4, 3, 3], [1, 5, 4, 3], [2, 5, 5, 4]]
    assert moves.tolist() == expected


def test_moves_slip_to_either_side():
    expected = [[0, 3, 1], [1, 0, 2], [2, 1, 3], [3, 2, 0]]
    assert tabular.slip_actions(4).tolist() == expected
