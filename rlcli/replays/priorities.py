"""Priorities: which windows are drawn more often, and what they weigh for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlcli.replays import sum_tree
from rlcli.replays.sum_tree import Tree
from rlcli.replays.windows import Windows
from rlcli.types import Array, ArrayTree, Key, Replay, Transition


class Masses(NamedTuple):
    """How priorities become masses; a leaf is drawn in proportion to its own.

    The state's first field is the sum tree. What comes new has the largest priority so
    far, what is gone no mass; the last leaf stands for no window, and never has any.
    """

    init: Callable[[], ArrayTree]
    renew: Callable[..., ArrayTree]  # (state, gone[M], come[K], count) -> state
    reweigh: Callable[..., ArrayTree]  # (state, index[N], priority[N]) -> state


class Proportional(NamedTuple):
    """State of `proportional`."""

    tree: Tree
    largest: Array  # the largest priority so far


class Ranked(NamedTuple):
    """State of `ranked`."""

    tree: Tree
    largest: Array
    priority: Array  # `[leaves]`, −1 where there is none
    ascending: Array  # the same, as sorted last


def proportional(leaves: int, alpha: float, epsilon: float) -> Masses:
    """Mass (p + ε)^α, with α as it was when p was set."""

    def init() -> Proportional:
        return Proportional(sum_tree.empty(leaves), jnp.float32(1.0))

    def renew(
        state: Proportional, gone: Array, come: Array, count: Array
    ) -> Proportional:
        del count
        tree = _renewed(state.tree, gone, come, state.largest**alpha, leaves - 1)
        return state._replace(tree=tree)

    def reweigh(state: Proportional, index: Array, priority: Array) -> Proportional:
        there = index < leaves - 1
        priority = _finite(priority, state.largest) + epsilon
        mass = jnp.where(there, priority**alpha, 0.0)
        return Proportional(
            sum_tree.assigned(state.tree, index, mass),
            jnp.max(priority, initial=state.largest, where=there),
        )

    return Masses(init, renew, reweigh)


def ranked(leaves: int, alpha: float, every: int) -> Masses:
    """Mass (1 / rank)^α, where rank 1 has the largest priority.

    All are sorted once in `every` unrolls, so that a step costs O(log N) as well:
    between two sorts a new priority has the rank it would have had at the last one.
    """

    def init() -> Ranked:
        none = jnp.full(leaves, -1.0)
        return Ranked(sum_tree.empty(leaves), jnp.float32(1.0), none, none)

    def renew(state: Ranked, gone: Array, come: Array, count: Array) -> Ranked:
        tree = _renewed(state.tree, gone, come, 1.0, leaves - 1)
        priority = state.priority.at[gone].set(-1.0).at[come].set(state.largest)
        priority = priority.at[-1].set(-1.0)  # the leaf that stands for none
        state = state._replace(tree=tree, priority=priority)
        due = (count % every == 0).astype(jnp.int32)
        # A loop of 0 or 1 turns: a `cond` would copy all of it at every step.
        return jax.lax.fori_loop(0, due, sort, state)

    def sort(turn: Array, state: Ranked) -> Ranked:
        # As if it depended on the turn: else XLA sorts in front of the loop, always.
        priority = jnp.where(turn == 0, state.priority, 0.0)
        order = jnp.argsort(priority, descending=True)
        rank = jnp.zeros(leaves).at[order].set(jnp.arange(1.0, leaves + 1))
        mass = jnp.where(priority >= 0, rank**-alpha, 0.0)
        return state._replace(
            tree=sum_tree.built(state.tree, mass), ascending=priority[order[::-1]]
        )

    def reweigh(state: Ranked, index: Array, priority: Array) -> Ranked:
        there = index < leaves - 1
        priority = _finite(priority, state.largest)
        above = leaves - jnp.searchsorted(state.ascending, priority, side="right")
        mass = jnp.where(there, (1.0 + above) ** -alpha, 0.0)
        kept = jnp.where(there, priority, -1.0)
        return Ranked(
            sum_tree.assigned(state.tree, index, mass),
            jnp.max(priority, initial=state.largest, where=there),
            state.priority.at[index].set(-1.0).at[index].max(kept),
            state.ascending,
        )

    return Masses(init, renew, reweigh)


class Weighed(NamedTuple):
    """The state of a replay with priorities."""

    steps: ArrayTree  # of the ring
    masses: ArrayTree


def leaves_of(windows: Windows, num_envs: int) -> int:
    """One for each window that there may be, and one that stands for none."""
    return windows.slots * num_envs + 1


def weighed(
    windows: Windows,
    num_envs: int,
    capacity: int,
    batch_size: int,
    masses: Masses,
    beta: float,
) -> Replay:
    """A replay that draws windows in proportion to their masses.

    One of each `batch_size`-th of the whole mass; each weighs (min P / P(i))^β, with
    the minimum over the batch.
    """
    ring = windows.ring
    none = windows.slots * num_envs

    def leaf(slots: Array) -> Array:
        """The leaves of these slots in all environments."""
        each = slots[:, None] * num_envs + jnp.arange(num_envs)
        return jnp.minimum(each, none).reshape(-1)

    def init(steps: Transition) -> Weighed:
        return Weighed(ring.init(steps), masses.init())

    def add(state: Weighed, steps: Transition, count: Array) -> Weighed:
        gone, come = leaf(windows.gone(count)), leaf(windows.come(count))
        return Weighed(
            ring.add(state.steps, steps, count),
            masses.renew(state.masses, gone, come, count),
        )

    def draw(key: Key) -> Array:
        return jax.random.uniform(key, (batch_size,))

    def sample(
        state: Weighed, count: Array, noise: Array
    ) -> tuple[Transition, Array, ArrayTree]:
        tree = state.masses.tree
        share = (jnp.arange(batch_size) + noise) / batch_size
        index = sum_tree.found(tree, share * sum_tree.total(tree))
        mass = sum_tree.leaves(tree)[index]
        index = jnp.where(mass > 0, index, none)  # where there is nothing to be drawn
        start = windows.start(index // num_envs, count)
        steps, whole = ring.take(state.steps, start, index % num_envs, windows.span)
        there = whole & (mass > 0)
        ratio = jnp.min(mass, initial=jnp.inf, where=there) / mass
        weight = jnp.where(there, ratio**beta, 0.0)
        return steps, jnp.broadcast_to(weight, (windows.span, batch_size)), index

    def reweigh(state: Weighed, index: Array, priority: Array) -> Weighed:
        return state._replace(masses=masses.reweigh(state.masses, index, priority))

    return Replay(init, draw, add, sample, reweigh, capacity, windows.least)


def _renewed(
    tree: Tree, gone: Array, come: Array, mass: Array | float, none: int
) -> Tree:
    """The tree with this mass where windows came, and none where they are gone."""
    mass = jnp.where(come < none, mass, 0.0)
    index = jnp.concatenate([gone, come])
    weight = jnp.concatenate([jnp.zeros(gone.shape), mass])
    return sum_tree.assigned(tree, index, weight)


def _finite(priority: Array, largest: Array) -> Array:
    """Priorities, with the largest so far for one that is no number."""
    return jnp.where(jnp.isfinite(priority), priority, largest)
