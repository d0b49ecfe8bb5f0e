"""Packing: stores the many small arrays of a pytree in one array per dtype.

Every argument and result of a dispatch costs one or two microseconds, with cold caches.
A small agent has about fifty, which cost more than its arithmetic. Within a program,
each array needs a kernel to write it and another to read it: about 70 ns each, of the
24 µs of a small step.
"""

import collections
import functools
from collections.abc import Callable, Mapping, Sequence
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
        small, large = self.partition(tree)
        return PackedTree(_concatenate(small), large)

    def partition(self, tree: ArrayTree) -> tuple[dict[str, list[Array]], list[Array]]:
        """Returns the small leaves of a pytree, by dtype, and the large ones."""
        leaves = self._structure.flatten_up_to(tree)
        small = {
            dtype: [leaves[index] for index in indices]
            for dtype, indices in self._small.items()
        }
        return small, [leaves[index] for index in self._large]

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
        return self.combine(self.split(packed_tree.small), packed_tree.large)

    def split(self, small: Mapping[str, Array]) -> dict[str, list[Array]]:
        """Unpacks the small leaves."""
        parts = {}
        for dtype, indices in self._small.items():
            offset, parts[dtype] = 0, []
            for index in indices:
                shape, size = self._leaves[index].shape, self._leaves[index].size
                part = small[dtype][offset : offset + size]
                parts[dtype].append(part.reshape(shape))
                offset += size
        return parts

    def combine(
        self, small: Mapping[str, Sequence[Array]], large: Sequence[Array]
    ) -> ArrayTree:
        """The inverse of `partition`."""
        leaves: list[Any] = [None] * len(self._leaves)
        for dtype, indices in self._small.items():
            for index, leaf in zip(indices, small[dtype], strict=True):
                leaves[index] = leaf
        for index, leaf in zip(self._large, large, strict=True):
            leaves[index] = leaf
        return self._structure.unflatten(leaves)

    @property
    def large_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the large leaves."""
        return [self._leaves[index].shape for index in self._large]


class InPlacePacking:
    """Packs pytrees outside of programs, without copying their large arrays.

    The result contains the large arrays of the argument, or takes over their memory, so
    the argument can no longer be used. The leaves of the packed tree may have another
    shape than those of the pytree, with as many elements.
    """

    def __init__(self, unpacked: Packing, packed: Packing) -> None:
        """`unpacked` has the shapes of the pytree, `packed` those of the result."""
        self._unpacked, self._packed = unpacked, packed
        self._concatenate = jax.jit(_concatenate)
        self._split = jax.jit(unpacked.split)

    def pack(self, tree: ArrayTree) -> PackedTree:
        """Packs a pytree of JAX arrays."""
        small, large = self._unpacked.partition(tree)
        large = map(_reshape_in_place, large, self._packed.large_shapes)
        return PackedTree(self._concatenate(small), [*large])

    def unpack(self, packed_tree: PackedTree) -> ArrayTree:
        """The inverse of `pack`."""
        small, large = self._split(packed_tree.small), packed_tree.large
        large = map(_reshape_in_place, large, self._unpacked.large_shapes)
        return self._unpacked.combine(small, [*large])


def _concatenate(small: Mapping[str, Sequence[Array]]) -> dict[str, Array]:
    return {
        dtype: jnp.concatenate([leaf.reshape(-1) for leaf in leaves])
        for dtype, leaves in small.items()
    }


def _reshape_in_place(array: Array, shape: tuple[int, ...]) -> Array:
    return array if array.shape == shape else _donated_reshape(array, shape)


# One array per program. JAX gives the memory of a donated array to any result of the
# same shape or size: with several arrays not always to its own, which is then copied.
@functools.partial(jax.jit, static_argnums=1, donate_argnums=0)
def _donated_reshape(array: Array, shape: tuple[int, ...]) -> Array:
    return array.reshape(shape)
