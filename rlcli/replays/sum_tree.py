"""Sum trees on the device: sampling in proportion to changing weights.

`rlcli.utils.SumTree` is the counterpart on the host.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Float, Float32, Int, Int32

from rlcli.types import Array

# Children per node. Each level costs a few small operations regardless of its width, so
# a broad tree is fast; 16 floats fill a cache line.
FANOUT = 16

Tree = tuple[
    Float32[jax.Array, "_"], ...
]  # levels from the root's children down to the leaves


def empty_tree(capacity: int) -> Tree:
    """A tree of `capacity` leaves of weight 0: ⌈log₁₆ capacity⌉ levels, float32."""
    if capacity < 1:
        raise ValueError(f"expected a capacity of at least 1, got {capacity}")
    levels = []
    nodes = capacity
    while not levels or nodes > 1:
        groups = -(-nodes // FANOUT)
        levels.append(jnp.zeros(groups * FANOUT, jnp.float32))
        nodes = groups
    return tuple(reversed(levels))


def leaf_weights(tree: Tree) -> Float32[Array, "leaves"]:
    """The weights, padded with zeros."""
    return tree[-1]


def total_weight(tree: Tree) -> Float32[Array, ""]:
    """The sum of all weights."""
    return jnp.sum(tree[0])


def build_tree(tree: Tree, weight: Float32[Array, "leaves"]) -> Tree:
    """The tree with these leaf weights, which may be padded: O(capacity)."""
    padding = tree[-1].shape[0] - weight.shape[0]
    levels = [jnp.pad(weight, (0, padding))]
    for level in reversed(tree[:-1]):
        sums = jnp.sum(levels[-1].reshape(-1, FANOUT), axis=-1)
        levels.append(jnp.pad(sums, (0, level.shape[0] - sums.shape[0])))
    return tuple(reversed(levels))


def set_weights(tree: Tree, index: Int[Array, "N"], weight: Float[Array, "N"]) -> Tree:
    """The tree with `weight` at the leaves `index`: O(N log capacity).

    For duplicate leaves the larger weight wins, regardless of the order of writes.
    Sums are recomputed, not updated by differences, so rounding does not accumulate.
    """
    zeroed = tree[-1].at[index].set(0.0)
    levels = [zeroed.at[index].max(weight)]
    children = jnp.arange(FANOUT)
    for level in reversed(tree[:-1]):
        index = index // FANOUT
        child_weights = levels[-1][index[:, None] * FANOUT + children]
        levels.append(level.at[index].set(jnp.sum(child_weights, axis=-1)))
    return tuple(reversed(levels))


def find_leaves(tree: Tree, mass: Float[Array, "N"]) -> Int32[Array, "N"]:
    """The smallest leaf i with mass < w₀ + … + wᵢ, for each mass.

    Masses lie in [0, total). Leaves of weight 0 are returned only if all weights are 0.
    Masses rounded beyond the last leaf return the last leaf. O(N log capacity).
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
