"""Data axis: the devices that share the environments and minibatches of one agent.

With `train.data_parallel` the loop runs its program on several devices, inside of
`jax.shard_map` over a mesh with this axis. The functions here combine the values of
these devices. In every other program they return their argument: a single device
compiles the same program as if they were not there.

All devices have to call them equally often: a condition around a call must have the
same value on every device.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from rlcli.types import Array, ArrayTree, Key, Traced
from rlcli.xla.packing import Packing

AXIS = "data"  # its name in meshes


def axis_size() -> int:
    """The number of devices on the axis; 1 in a program without the axis."""
    try:
        return jax.lax.axis_size(AXIS)
    except NameError:  # JAX has no other way to ask whether an axis exists
        return 1


def mean_over_devices(tree: ArrayTree) -> ArrayTree:
    """The mean of a pytree over the devices."""
    return _reduce(jax.lax.pmean, tree)


def sum_over_devices(tree: ArrayTree) -> ArrayTree:
    """The sum of a pytree over the devices."""
    return _reduce(jax.lax.psum, tree)


def min_over_devices(tree: ArrayTree) -> ArrayTree:
    """The minimum of a pytree over the devices."""
    return _reduce(jax.lax.pmin, tree)


def max_over_devices(tree: ArrayTree) -> ArrayTree:
    """The maximum of a pytree over the devices."""
    return _reduce(jax.lax.pmax, tree)


def any_over_devices(flag: Array) -> Array:
    """Whether a flag is set on any of the devices."""
    if axis_size() == 1:
        return flag
    return jax.lax.pmax(flag.astype(jnp.int32), AXIS) > 0


def fold_in_device(key: Key) -> Key:
    """Derives a different key for each device."""
    if axis_size() == 1:
        return key
    return jax.random.fold_in(key, jax.lax.axis_index(AXIS))


def share_indices(size: int) -> Array:
    """The indices of this device's `size` elements among those of all devices."""
    indices = jnp.arange(size)
    return indices if axis_size() == 1 else indices + _first_index(size)


def draw_share(draw: Callable[[Key, int], ArrayTree], key: Key, size: int) -> ArrayTree:
    """This device's share of the noise `draw(key, batch)`, for `size` elements.

    The noise of an element depends only on its index among the elements of all devices.
    If the noise is a key, without a batch axis, each device gets a different key.
    """
    devices = axis_size()
    if devices == 1:
        return draw(key, size)
    shapes = jax.eval_shape(lambda: draw(key, size))
    noise = draw(key, devices * size)

    def share(leaf: Traced, shape: jax.ShapeDtypeStruct) -> Array:
        if leaf.shape == shape.shape:
            return fold_in_device(leaf)
        return jax.lax.dynamic_slice_in_dim(leaf, _first_index(size), size)

    return jax.tree.map(share, noise, shapes)


def _first_index(size: int) -> Array:
    return jax.lax.axis_index(AXIS) * size


def _reduce(reduction: Callable[..., ArrayTree], tree: ArrayTree) -> ArrayTree:
    """Reduces a pytree with one collective operation per dtype.

    Each operation makes all devices wait for each other.
    """
    leaves = jax.tree.leaves(tree)
    if axis_size() == 1 or not leaves:
        return tree
    packing = Packing(tree, small_size=max(leaf.size for leaf in leaves))
    return packing.unpack(reduction(packing.pack(tree), AXIS))
