"""Rings: the same steps, whatever devices share them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick_first

from rlcli.replays.rings import step_ring

ENVIRONMENTS, ROWS = 4, 6  # of all devices; the newest steps of each environment


def filled_rings(devices: int, count: int, unroll: int):
    """The rings of all devices after `count` unrolls, `[1, …]`, and one of them.

    A step is 10 times its time plus its environment.
    """
    share = ENVIRONMENTS // devices
    ring = step_ring(ROWS * share, unroll, share)
    add = jax.jit(ring.add)
    states = []
    for device in range(devices):
        environment = jnp.arange(device * share, (device + 1) * share)
        state = ring.init(jnp.zeros((unroll, share), jnp.int32))
        for i in range(count):
            times = i * unroll + jnp.arange(unroll)[:, None]
            state = add(state, 10 * times + environment, jnp.int32(i))
        states.append(state)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[None], *states), ring


@pytest.mark.parametrize(
    ("before", "after", "count", "unroll"),
    quick_first([(4, 1, 7, 2), (2, 1, 10, 1), (1, 4, 10, 1), (4, 2, 3, 1)]),
)
def test_each_environment_keeps_its_newest_steps_on_another_device(
    before, after, count, unroll
):
    share = ENVIRONMENTS // after
    state, _ = filled_rings(before, count, unroll)
    fresh, ring = filled_rings(after, count, unroll)
    state = ring.redivide(state, count, before, after)
    assert jax.tree.map(np.shape, state) == jax.tree.map(np.shape, fresh)
    first = max(count * unroll - ROWS, 0)
    times = np.arange(first, count * unroll)[:, None]
    for device in range(after):
        part = jax.tree.map(lambda leaf: np.split(leaf[0], after)[device], state)  # noqa: B023
        environments = jnp.arange(share)
        steps, _ = ring.take(
            jax.tree.map(jnp.asarray, part),
            jnp.full(share, first),
            environments,
            len(times),
        )
        expected = 10 * times + device * share + np.arange(share)
        np.testing.assert_array_equal(steps, expected)
