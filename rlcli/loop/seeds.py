"""Seeds: the same program for one seed or several, on one device or several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlcli.loop.progress import Setup
from rlcli.types import Array, ArrayTree


def vmap_seeds(function: Callable, seeds: int, inputs: Any, outputs: Any) -> Callable:
    """`vmap` over the axis of seeds; a single seed is squeezed, at no cost."""
    if seeds > 1:
        return jax.vmap(function, in_axes=inputs, out_axes=outputs)

    def single(*arguments: Any) -> Any:
        return expand_seed(function(*squeeze_seed(arguments, inputs)), outputs)

    return single


def shard_seeds(
    function: Callable, devices: int, inputs: Any, outputs: Any
) -> Callable:
    """`shard_map` over the axis of seeds; the function itself for a single device.

    A mesh of one device would be part of every array's type: what is traced with shapes
    would be traced again with arrays.
    """
    if devices == 1:
        return function
    specs = [_partition_specs(axes) for axes in (inputs, outputs)]
    return jax.shard_map(
        function,
        mesh=_mesh(devices),
        in_specs=specs[0],
        out_specs=specs[1],
        check_vma=False,
    )


def seed_shardings(devices: int, tree: ArrayTree, axes: Any) -> ArrayTree:
    """The sharding of every array of a tree; None for all on a single device."""
    if devices == 1:
        return jax.tree.map(lambda leaf: None, tree)
    mesh = _mesh(devices)
    return jax.tree.map(
        lambda spec, part: jax.tree.map(lambda leaf: NamedSharding(mesh, spec), part),
        _partition_specs(axes),
        tree,
    )


def shapes_on_devices(devices: int, shapes: ArrayTree, axes: Any) -> ArrayTree:
    """Shapes with the shardings of the arrays that `shard_seeds` returns."""
    if devices == 1:
        return shapes
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding
        ),
        shapes,
        seed_shardings(devices, shapes, axes),
    )


def _mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:devices]), ("seeds",))


def _partition_specs(axes: Any) -> Any:
    return jax.tree.map(
        lambda axis: PartitionSpec() if axis is None else PartitionSpec("seeds"),
        axes,
        is_leaf=lambda axis: axis is None,
    )


def squeeze_seed(tree: ArrayTree, axes: Any) -> ArrayTree:
    """Removes the axis of a single seed where `axes` is not None."""
    return _map_seed_axis(lambda leaf: leaf[0], tree, axes)


def expand_seed(tree: ArrayTree, axes: Any) -> ArrayTree:
    """Adds an axis for a single seed where `axes` is not None."""
    return _map_seed_axis(lambda leaf: jnp.expand_dims(leaf, 0), tree, axes)


def _map_seed_axis(change: Callable, tree: ArrayTree, axes: Any) -> ArrayTree:
    return jax.tree.map(
        lambda axis, part: part if axis is None else jax.tree.map(change, part),
        axes,
        tree,
        is_leaf=lambda axis: axis is None,
    )


def seed_array(setup: Setup) -> Array:
    """The seeds of a setup, uint32 `[S]`."""
    return jnp.asarray(np.array(setup.seeds, np.uint32))
