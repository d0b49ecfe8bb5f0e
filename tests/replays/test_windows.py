"""Windows of a ring against sets of all available windows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.replays.rings import Ring, Windows

# (rows, unroll, span, stride, before, after)
SHAPES = [
    (7, 1, 1, 1, 0, 0),
    (4, 1, 4, 1, 0, 0),
    (8, 4, 8, 1, 0, 0),
    (12, 4, 3, 1, 2, 1),
    (10, 1, 2, 1, 3, 1),
    (20, 1, 5, 3, 0, 0),
    (20, 4, 6, 4, 0, 0),
    (24, 8, 7, 3, 0, 0),
    (21, 3, 5, 7, 3, 1),
    (12, 1, 4, 9, 0, 0),
]


def available_starts(shape, count):
    """Starts of available windows after `count` unrolls, by definition."""
    rows, unroll, span, stride, before, after = shape
    time = count * unroll
    oldest = 0 if time <= rows else time - rows + before
    starts = range(oldest, time - span - after + 1)
    return {start for start in starts if start % stride == 0}


def windows_of(shape):
    rows, unroll, span, stride, before, after = shape
    ring = Ring(None, None, None, rows, unroll, 1, before, after)
    return Windows(ring, span, stride)


def unrolls_of(shape):
    return 6 * (shape[0] // shape[1])  # several times around the ring


@pytest.fixture(scope="module")
def window_results():
    """The results of the windows of every shape at all times, in one program."""

    def results():
        for shape in SHAPES:
            windows, counts = windows_of(shape), jnp.arange(unrolls_of(shape))
            slots = jnp.arange(windows.slots)
            yield {
                "available": jax.vmap(windows.available)(counts),
                "overwritten": jax.vmap(windows.overwritten_slots)(counts),
                "completed": jax.vmap(windows.completed_slots)(counts),
                "starting": jax.vmap(windows.starting_rows)(counts),
                "start": jax.vmap(windows.start_time, (None, 0))(slots, counts),
            }

    arrays = jax.jit(lambda: list(results()))()
    return dict(zip(SHAPES, jax.tree.map(np.asarray, arrays), strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_windows_are_available_from_their_last_step_until_their_first_is_overwritten(
    shape, window_results
):
    _, unroll, _, stride, _, _ = shape
    windows, results = windows_of(shape), window_results[shape]
    is_available = np.zeros(windows.slots + 1, bool)
    for count in range(unrolls_of(shape)):
        expected = available_starts(shape, count)
        first, number = (values[count] for values in results["available"])
        if expected:
            assert sorted(expected) == [first + i * stride for i in range(number)]
        assert set(results["start"][count][is_available[:-1]]) == expected
        if count * unroll >= windows.min_steps:
            assert expected
        is_available[results["overwritten"][count]] = False
        is_available[results["completed"][count]] = True
        is_available[-1] = False  # the slot for no window


@pytest.mark.parametrize("shape", SHAPES)
def test_windows_begin_on_their_grid_in_every_unroll(shape, window_results):
    _, unroll, _, stride, _, _ = shape
    slots = windows_of(shape).slots
    rows, starting_slots = window_results[shape]["starting"]
    for count in range(unrolls_of(shape)):
        new = range(count * unroll, (count + 1) * unroll)
        beginning = [time for time in new if time % stride == 0]
        is_window = starting_slots[count] < slots
        assert (rows[count][is_window] + count * unroll).tolist() == beginning
        expected_slots = [time // stride % slots for time in beginning]
        assert starting_slots[count][is_window].tolist() == expected_slots
