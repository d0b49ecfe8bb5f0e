"""Packing: stores the many small arrays of a pytree in one array per dtype.

Every argument and result of a dispatch costs one or two microseconds, with cold caches.
A small agent has about fifty, which cost more than its arithmetic. Within a program,
each array needs a kernel to write it and another to read it: about 70 ns each, of the
24 µs of a small step.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.types import Array, ArrayTree

# Elements: copying a larger array costs as much as passing it. Ring buffers are larger.
SMALL_SIZE = 256


class PackedTree(NamedTuple):
    """A packed pytree."""

    small: Mapping[str, Array]  # by dtype: all small leaves, flat and concatenated
    large: list[Array]


@jax.tree_util.register_static
class Packing:
    """The layout of a packed pytree. Packs leaves of at most `small_size` elements.

    A state may contain it: for JAX it is part of the tree structure.
    """

    def __init__(self, shapes: ArrayTree, small_size: int = SMALL_SIZE) -> None:
        leaves, self._structure = jax.tree.flatten(shapes)
        self._leaves = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
        self._small_size = small_size
        self._small: dict[str, list[int]] = collections.defaultdict(list)
        self._large = []
        for index, leaf in enumerate(self._leaves):
            if leaf.size > small_size:
                self._large.append(index)
            else:
                self._small[leaf.dtype.name].append(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packing) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple:
        return self._structure, tuple(self._leaves), self._small_size

    def pack(self, tree: ArrayTree) -> PackedTree:
        """Packs a pytree of JAX arrays, inside a program."""
        leaves = self._structure.flatten_up_to(tree)
        small = {
            dtype: jnp.concatenate([leaves[index].reshape(-1) for index in indices])
            for dtype, indices in self._small.items()
        }
        return PackedTree(small, [leaves[index] for index in self._large])

    def host_packer(self) -> Callable[[ArrayTree], PackedTree]:
        """Returns a function that packs pytrees of NumPy arrays with this structure.

        Every call writes into the same arrays: a packed tree must be read before the
        next call. A program has read its arguments once its results are available.
        """
        small, views = {}, {}
        for dtype, indices in self._small.items():
            sizes = [self._leaves[index].size for index in indices]
            small[dtype] = np.empty(sum(sizes), dtype)
            parts = np.split(small[dtype], np.cumsum(sizes)[:-1])
            for index, part in zip(indices, parts, strict=True):
                views[index] = part.reshape(self._leaves[index].shape)

        def pack(tree: ArrayTree) -> PackedTree:
            leaves = jax.tree.leaves(tree)
            for index, view in views.items():
                view[...] = leaves[index]
            return PackedTree(small, [leaves[index] for index in self._large])

        return pack

    def unpack(self, packed_tree: PackedTree) -> ArrayTree:
        """Unpacks a pytree, inside a program or of NumPy arrays on the host."""
        leaves: list[Any] = list(self._leaves)
        for dtype, indices in self._small.items():
            offset = 0
            for index in indices:
                shape, size = leaves[index].shape, leaves[index].size
                part = packed_tree.small[dtype][offset : offset + size]
                leaves[index] = part.reshape(shape)
                offset += size
        for index, leaf in zip(self._large, packed_tree.large, strict=True):
            leaves[index] = leaf
        return self._structure.unflatten(leaves)
