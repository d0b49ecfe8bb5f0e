"""Seeds: the same program for one seed or several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.loop.progress import Setup
from rlcli.types import Array, ArrayTree


def vmap_seeds(function: Callable, seeds: int, inputs: Any, outputs: Any) -> Callable:
    """`vmap` over the axis of seeds; a single seed is squeezed, at no cost."""
    if seeds > 1:
        return jax.vmap(function, in_axes=inputs, out_axes=outputs)

    def single(*arguments: Any) -> Any:
        return expand_seed(function(*squeeze_seed(arguments, inputs)), outputs)

    return single


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
