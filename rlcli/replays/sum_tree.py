"""Sum trees on the device: draws in proportion to weights that change all the time.

`rlcli.utils.SumTree` is its counterpart on the host.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlcli.types import Array

# Children of a node. Each level is a handful of small operations whatever its width,
# so a broad tree is a fast one; sixteen numbers are a cache line.
FANOUT = 16

Tree = tuple[Array, ...]  # levels from the root's children down to the leaves


def empty_tree(capacity: int) -> Tree:
    """`capacity` leaves without weight: ⌈log₁₆ capacity⌉ levels, float32."""
    if capacity < 1:
        raise ValueError(f"expected a capacity of at least 1, got {capacity}")
    levels = []
    nodes = capacity
    while not levels or nodes > 1:
        groups = -(-nodes // FANOUT)
        levels.append(jnp.zeros(groups * FANOUT, jnp.float32))
        nodes = groups
    return tuple(reversed(levels))


def leaf_weights(tree: Tree) -> Array:
    """The weights, `[capacity]`, padded with zeros."""
    return tree[-1]


def total_weight(tree: Tree) -> Array:
    """The sum of all weights."""
    return jnp.sum(tree[0])


def build_tree(tree: Tree, weight: Array) -> Tree:
    """The tree with these leaves, `[capacity]` or padded: O(capacity)."""
    padding = tree[-1].shape[0] - weight.shape[0]
    levels = [jnp.pad(weight, (0, padding))]
    for level in reversed(tree[:-1]):
        sums = jnp.sum(levels[-1].reshape(-1, FANOUT), axis=-1)
        levels.append(jnp.pad(sums, (0, level.shape[0] - sums.shape[0])))
    return tuple(reversed(levels))


def set_weights(tree: Tree, index: Array, weight: Array) -> Tree:
    """The tree with `weight` `[N]` at the leaves `index` `[N]`: O(N log capacity).

    Where a leaf comes twice the larger weight stays, whatever the order in which a
    device writes. Sums are added up anew, never corrected: no error accumulates.
    """
    zeroed = tree[-1].at[index].set(0.0)
    levels = [zeroed.at[index].max(weight)]
    children = jnp.arange(FANOUT)
    for level in reversed(tree[:-1]):
        index = index // FANOUT
        child_weights = levels[-1][index[:, None] * FANOUT + children]
        levels.append(level.at[index].set(jnp.sum(child_weights, axis=-1)))
    return tuple(reversed(levels))


def find_leaves(tree: Tree, mass: Array) -> Array:
    """The least leaf i with mass < w₀ + … + wᵢ, int32 `[N]`, for masses `[N]`.

    Masses lie in [0, total). A leaf without weight is never given, unless none has
    any; what rounding puts behind the last one gives that one. O(N log capacity).
    """
    children = jnp.arange(FANOUT)
    node = jnp.zeros(mass.shape, jnp.int32)
    for level in tree:
        weight = level[node[:, None] * FANOUT + children]
        until = jnp.cumsum(weight, axis=-1)
        last = jnp.max(jnp.where(weight > 0, children, 0), axis=-1)
        child = jnp.sum(until <= mass[:, None], axis=-1, dtype=jnp.int32)
        child = jnp.minimum(child, last)
        weight_before = jnp.sum(
            jnp.where(children < child[:, None], weight, 0), axis=-1
        )
        mass = mass - weight_before
        node = node * FANOUT + child
    return node
