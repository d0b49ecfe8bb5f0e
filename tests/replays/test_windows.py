"""Windows of a ring, beside sets of all that stand at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.replays.rings import Ring
from rlcli.replays.windows import Windows

# (rows, unroll, span, stride, before, behind)
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


def standing(shape, count):
    """Where windows begin after so many unrolls, by the definition."""
    rows, unroll, span, stride, before, behind = shape
    time = count * unroll
    oldest = 0 if time <= rows else time - rows + before
    starts = range(oldest, time - span - behind + 1)
    return {start for start in starts if start % stride == 0}


def windows_of(shape):
    rows, unroll, span, stride, before, behind = shape
    return Windows(Ring(None, None, None, rows, before, behind), unroll, span, stride)


def unrolls_of(shape):
    return 6 * (shape[0] // shape[1])  # around the ring, again and again


@pytest.fixture(scope="module")
def window_results():
    """What the windows of every shape say, at all times: one program."""

    def everything():
        for shape in SHAPES:
            windows, counts = windows_of(shape), jnp.arange(unrolls_of(shape))
            slots = jnp.arange(windows.slots)
            yield {
                "standing": jax.vmap(windows.available)(counts),
                "gone": jax.vmap(windows.overwritten_slots)(counts),
                "come": jax.vmap(windows.completed_slots)(counts),
                "begun": jax.vmap(windows.starting_rows)(counts),
                "start": jax.vmap(windows.start_time, (None, 0))(slots, counts),
            }

    found = jax.jit(lambda: list(everything()))()
    return dict(zip(SHAPES, jax.tree.map(np.asarray, found), strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_windows_stand_from_their_last_step_until_their_first_is_overwritten(
    shape, window_results
):
    _, unroll, _, stride, _, _ = shape
    windows, said = windows_of(shape), window_results[shape]
    there = np.zeros(windows.slots + 1, bool)
    for count in range(unrolls_of(shape)):
        expected = standing(shape, count)
        first, number = (each[count] for each in said["standing"])
        if expected:
            assert sorted(expected) == [first + i * stride for i in range(number)]
        assert set(said["start"][count][there[:-1]]) == expected
        if count * unroll >= windows.min_steps:
            assert expected
        there[said["gone"][count]] = False
        there[said["come"][count]] = True
        there[-1] = False  # stands for none


@pytest.mark.parametrize("shape", SHAPES)
def test_windows_begin_on_their_grid_in_every_unroll(shape, window_results):
    _, unroll, _, stride, _, _ = shape
    slots = windows_of(shape).slots
    rows, begun = window_results[shape]["begun"]
    for count in range(unrolls_of(shape)):
        new = range(count * unroll, (count + 1) * unroll)
        beginning = [time for time in new if time % stride == 0]
        held = begun[count] < slots
        assert (rows[count][held] + count * unroll).tolist() == beginning
        assert begun[count][held].tolist() == [t // stride % slots for t in beginning]
