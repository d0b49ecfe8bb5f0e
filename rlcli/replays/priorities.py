"""Priorities: sampling probabilities of windows, importance weights, and sum trees.

A sum tree samples in proportion to changing weights, on the device; its counterpart on
the host is `rlcli.utils.SumTree`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Float32, Int, Int32

from rlcli.replays.rings import Windows
from rlcli.types import Array, ArrayTree, Key, Replay, Transition
from rlcli.xla.control_flow import update_if
from rlcli.xla.data_axis import axis_size, max_over_devices, min_over_devices

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


class PriorityMasses(NamedTuple):
    """Converts priorities to masses; a leaf is sampled in proportion to its mass.

    The state's first field is the sum tree. New windows get the largest priority so
    far, removed windows mass 0. The last leaf stands for no window; its mass is 0.
    """

    init: Callable[[], ArrayTree]
    renew: Callable[..., ArrayTree]  # (state, removed[·], added[·], count) -> state
    reweigh: Callable[..., ArrayTree]  # (state, index[N], priority[N]) -> state


class ProportionalState(NamedTuple):
    """State of `proportional_masses`."""

    tree: Tree
    largest: Float[Array, ""]  # the largest priority so far


class RankedState(NamedTuple):
    """State of `rank_masses`."""

    tree: Tree
    largest: Float[Array, ""]
    priority: Float[jax.Array, "leaves"]  # −1 for leaves without a window
    ascending: Float[Array, "leaves"]  # priorities of the last sort, ascending


def proportional_masses(no_window: int, alpha: float, epsilon: float) -> PriorityMasses:
    """Mass (p + ε)^α, with the α at the time p was set.

    `no_window` is the index of the last leaf.
    """

    def init() -> ProportionalState:
        return ProportionalState(empty_tree(no_window + 1), jnp.float32(1.0))

    def renew(
        state: ProportionalState,
        removed: Int[Array, "removed"],
        added: Int[Array, "added"],
        count: Int[Array, ""],
    ) -> ProportionalState:
        tree = _renew_leaves(
            state.tree, removed, added, state.largest**alpha, no_window
        )
        return state._replace(tree=tree)

    def reweigh(
        state: ProportionalState, index: Int[Array, "N"], priority: Float[Array, "N"]
    ) -> ProportionalState:
        is_window = index < no_window
        priority = _replace_non_finite(priority, state.largest) + epsilon
        mass = jnp.where(is_window, priority**alpha, 0.0)
        largest = jnp.max(priority, initial=state.largest, where=is_window)
        return ProportionalState(
            set_weights(state.tree, index, mass), max_over_devices(largest)
        )

    return PriorityMasses(init, renew, reweigh)


def rank_masses(no_window: int, alpha: float, sort_period: int) -> PriorityMasses:
    """Mass (1 / rank)^α, where rank 1 has the largest priority.

    All priorities are sorted once every `sort_period` unrolls. Between two sorts, a new
    priority gets the rank it would have had at the last sort, in O(log N). `no_window`
    is the index of the last leaf.
    """
    leaves = no_window + 1

    def init() -> RankedState:
        no_priority = jnp.full(leaves, -1.0)
        return RankedState(
            empty_tree(leaves), jnp.float32(1.0), no_priority, no_priority
        )

    def renew(
        state: RankedState,
        removed: Int[Array, "removed"],
        added: Int[Array, "added"],
        count: Int[Array, ""],
    ) -> RankedState:
        tree = _renew_leaves(state.tree, removed, added, 1.0, no_window)
        priority = state.priority.at[removed].set(-1.0).at[added].set(state.largest)
        priority = priority.at[-1].set(-1.0)  # the leaf of no window
        state = state._replace(tree=tree, priority=priority)
        return update_if(count % sort_period == 0, sort, state)

    def sort(iteration: Int[Array, ""], state: RankedState) -> RankedState:
        # Depends on `iteration`, so that XLA does not hoist the sort (`update_if`).
        priority = jnp.where(iteration == 0, state.priority, 0.0)
        order = jnp.argsort(priority, descending=True)
        rank = jnp.zeros(leaves).at[order].set(jnp.arange(1.0, leaves + 1))
        mass = jnp.where(priority >= 0, rank**-alpha, 0.0)
        return state._replace(
            tree=build_tree(state.tree, mass), ascending=priority[order[::-1]]
        )

    def reweigh(
        state: RankedState, index: Int[Array, "N"], priority: Float[Array, "N"]
    ) -> RankedState:
        is_window = index < no_window
        priority = _replace_non_finite(priority, state.largest)
        rank_above = leaves - jnp.searchsorted(state.ascending, priority, side="right")
        mass = jnp.where(is_window, (1.0 + rank_above) ** -alpha, 0.0)
        new_priority = jnp.where(is_window, priority, -1.0)
        largest = jnp.max(priority, initial=state.largest, where=is_window)
        return RankedState(
            set_weights(state.tree, index, mass),
            max_over_devices(largest),
            state.priority.at[index].set(-1.0).at[index].max(new_priority),
            state.ascending,
        )

    return PriorityMasses(init, renew, reweigh)


class PrioritizedState(NamedTuple):
    """The state of a prioritized replay."""

    steps: ArrayTree  # ring state
    masses: ArrayTree


def prioritized_replay(
    windows: Windows,
    capacity: int,
    batch_size: int,
    masses: PriorityMasses,
    beta: float,
) -> Replay:
    """A replay that samples windows in proportion to their masses.

    Sampling is stratified: one window from each of `batch_size` equal shares of the
    total mass. Each has weight (min P / P(i))^β, with the minimum over the batch.
    Devices that share a batch sample equal shares of it, each from its own windows.
    """
    ring, num_envs, no_window = windows.ring, windows.ring.num_envs, windows.no_window

    def leaf(slots: Int[Array, "slots"]) -> Int[Array, "leaves"]:
        """The leaves of these slots in all environments."""
        leaf_indices = slots[:, None] * num_envs + jnp.arange(num_envs)
        return jnp.minimum(leaf_indices, no_window).reshape(-1)

    def init(steps: Transition) -> PrioritizedState:
        return PrioritizedState(ring.init(steps), masses.init())

    def add(
        state: PrioritizedState, steps: Transition, count: Int[Array, ""]
    ) -> PrioritizedState:
        removed = leaf(windows.overwritten_slots(count))
        added = leaf(windows.completed_slots(count))
        return PrioritizedState(
            ring.add(state.steps, steps, count),
            masses.renew(state.masses, removed, added, count),
        )

    def draw(key: Key) -> Float[Array, "N"]:
        return jax.random.uniform(key, (batch_size,))

    def sample(
        state: PrioritizedState, count: Int[Array, ""], noise: Float[Array, "N"]
    ) -> tuple[Transition, Float[Array, "T N"], ArrayTree]:
        tree = state.masses.tree
        share = (jnp.arange(batch_size) + noise) / batch_size
        index = find_leaves(tree, share * total_weight(tree))
        mass = leaf_weights(tree)[index]
        index = jnp.where(mass > 0, index, no_window)  # the tree may still be empty
        start = windows.start_time(index // num_envs, count)
        steps, is_complete = ring.take(
            state.steps, start, index % num_envs, windows.span
        )
        is_valid = is_complete & (mass > 0)
        smallest = jnp.min(mass, initial=jnp.inf, where=is_valid)
        if axis_size() > 1:  # masses are relative to the total mass of their device
            total = total_weight(tree)
            smallest = min_over_devices(smallest / total) * total
        weight = jnp.where(is_valid, (smallest / mass) ** beta, 0.0)
        return steps, jnp.broadcast_to(weight, (windows.span, batch_size)), index

    def reweigh(
        state: PrioritizedState, index: Int[Array, "N"], priority: Float[Array, "N"]
    ) -> PrioritizedState:
        return state._replace(masses=masses.reweigh(state.masses, index, priority))

    return Replay(
        init,
        draw,
        add,
        sample,
        reweigh,
        traits=windows.traits(capacity, batch_size),
        contents=lambda state, *rest: ring.contents(state.steps, *rest),
    )


def _renew_leaves(
    tree: Tree,
    removed: Int[Array, "removed"],
    added: Int[Array, "added"],
    mass: Float[Array, ""] | float,
    no_window: int,
) -> Tree:
    """The tree with this mass at added windows, and mass 0 at removed ones."""
    masses = jnp.where(added < no_window, mass, 0.0)
    index = jnp.concatenate([removed, added])
    weight = jnp.concatenate([jnp.zeros(removed.shape), masses])
    return set_weights(tree, index, weight)


def _replace_non_finite(
    priority: Float[Array, "N"], largest: Float[Array, ""]
) -> Float[Array, "N"]:
    """Replaces non-finite priorities with the largest priority so far."""
    return jnp.where(jnp.isfinite(priority), priority, largest)
