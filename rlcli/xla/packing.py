"""Packing: the many small arrays of a tree as a few, one of each dtype.

Between two dispatches every argument and every result of a compiled program costs a
microsecond or two, cold caches included, and a small agent has some fifty: more than
its arithmetic takes. Within a program each of them is a kernel of its own to write, and
one more to read: some 70 ns each, of the 24 µs of a small step.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.types import Array, ArrayTree

SMALL_SIZE = (
    256  # numbers: to copy more costs what the argument did, and rings stay alone
)


class PackedTree(NamedTuple):
    """A tree, packed."""

    small: dict[str, Array]  # by dtype: all small leaves, end to end
    large: list[Array]


@jax.tree_util.register_static
class Packing:
    """How a tree of these shapes is packed: leaves of at most `small` numbers.

    A state may hold it beside what it has packed: to JAX it is part of the structure.
    """

    def __init__(self, shapes: ArrayTree, small: int = SMALL_SIZE) -> None:
        leaves, self._structure = jax.tree.flatten(shapes)
        self._leaves = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
        self._small_enough = small
        self._small: dict[str, list[int]] = collections.defaultdict(list)
        self._large = []
        for index, leaf in enumerate(self._leaves):
            if leaf.size > small:
                self._large.append(index)
            else:
                self._small[leaf.dtype.name].append(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packing) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple:
        return self._structure, tuple(self._leaves), self._small_enough

    def pack(self, tree: ArrayTree) -> PackedTree:
        """A tree of JAX arrays, inside a program."""
        leaves = self._structure.flatten_up_to(tree)
        small = {
            dtype: jnp.concatenate([leaves[index].reshape(-1) for index in indices])
            for dtype, indices in self._small.items()
        }
        return PackedTree(small, [leaves[index] for index in self._large])

    def host_packer(self) -> Callable[[ArrayTree], PackedTree]:
        """What packs trees of NumPy arrays that are known to have this structure.

        It writes into the same arrays at each call: one tree has to be read before the
        next is packed, as a program has done once its results are there.
        """
        small, places = {}, {}
        for dtype, indices in self._small.items():
            sizes = [self._leaves[index].size for index in indices]
            small[dtype] = np.empty(sum(sizes), dtype)
            parts = np.split(small[dtype], np.cumsum(sizes)[:-1])
            for index, part in zip(indices, parts, strict=True):
                places[index] = part.reshape(self._leaves[index].shape)

        def pack(tree: ArrayTree) -> PackedTree:
            leaves = jax.tree.leaves(tree)
            for index, place in places.items():
                place[...] = leaves[index]
            return PackedTree(small, [leaves[index] for index in self._large])

        return pack

    def unpack(self, packed_tree: PackedTree) -> ArrayTree:
        """The tree again, inside a program or of NumPy arrays on the host."""
        leaves = list(self._leaves)
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
