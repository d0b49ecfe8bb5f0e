"""Moments: running means and variances, of observations and of discounted sums.

What is divided by a deviation is clipped, because a deviation may be almost 0: that of
a constant entry, or of rewards before the first one that is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from rlcli import spaces
from rlcli.distributions import action_masks
from rlcli.types import Array, ArrayTree, PerRow, Transition
from rlcli.xla.data_axis import axis_size, mean_over_devices

_EPSILON = 1e-8  # added to variances
_MAX_COUNT = 2**30  # the count saturates here, and so does the weight of new rows
_MAX_VALUE = 1e15  # of a row in the moments: sums of its square stay finite in float32


class Moments(NamedTuple):
    """Running mean and variance; initially 0 and 1."""

    count: Array  # int32
    mean: ArrayTree
    variance: ArrayTree

    @staticmethod
    def initial(like: ArrayTree) -> Moments:
        """The moments of zero rows, shaped as `like`."""
        zeros = jax.tree.map(jnp.zeros_like, like)
        return Moments(jnp.int32(0), zeros, jax.tree.map(jnp.ones_like, zeros))

    def update(self, rows: ArrayTree) -> Moments:
        """The moments with rows `[N, ...]`.

            δ = mean(rows) − m,  s = N / (n + N)
            m ← m + s δ          v ← (1 − s) v + s (var(rows) + (1 − s) δ²)

        (Chan et al., 1983, https://doi.org/10.1080/00031305.1983.10483115)
        The rows are those of all devices (`xla.data_axis`), which have equally many. An
        entry that is not finite counts as the mean, and one beyond ±10¹⁵ as ±10¹⁵.
        """
        number = jax.tree.leaves(rows)[0].shape[0] * axis_size()
        share = number / (self.count.astype(jnp.float32) + number)

        def average(rows: ArrayTree) -> ArrayTree:
            means = jax.tree.map(lambda new: jnp.mean(new, axis=0), rows)
            return mean_over_devices(means)

        def move(mean: Array, shift: Array) -> Array:
            return mean + share * shift

        def spread(variance: Array, shift: Array, within: Array) -> Array:
            between_variance = (1 - share) * jnp.square(shift)
            # Not v + s (… − v): a rounding error of the initial 1 would remain.
            return (1 - share) * variance + share * (within + between_variance)

        # In two passes, from the running mean: a mean of numbers that are large beside
        # their deviation has a rounding error, which would be taken for a deviation.
        offsets = jax.tree.map(_offsets, rows, self.mean)
        rough = average(offsets)
        centred = jax.tree.map(jnp.subtract, offsets, rough)
        error = average(centred)
        shift = jax.tree.map(jnp.add, rough, error)
        within = average(jax.tree.map(lambda x, e: jnp.square(x - e), centred, error))
        return Moments(
            jnp.minimum(self.count, _MAX_COUNT - number) + number,
            jax.tree.map(move, self.mean, shift),
            jax.tree.map(spread, self.variance, shift, within),
        )

    @property
    def known_variance(self) -> ArrayTree:
        """The variance; 1 if there is only one row, which has none."""
        is_single = self.count == 1
        return jax.tree.map(lambda leaf: jnp.where(is_single, 1, leaf), self.variance)

    @property
    def deviation(self) -> Array:
        """The standard deviation of a single array, √(var + 10⁻⁸)."""
        return jnp.sqrt(self.known_variance + _EPSILON)

    def clip(self, values: Array, clip: Array | float | None) -> Array:
        """Clips values to ±`clip` deviations of a single array; None: unchanged.

        Divided by the deviation, they are at most `clip`.
        """
        if clip is None:
            return values
        limit = clip * self.deviation
        return jnp.clip(values, -limit, limit)


def _offsets(rows: Array, mean: Array) -> Array:
    """The differences of rows and mean; 0 for entries that are not finite."""
    bounded = jnp.clip(rows, -_MAX_VALUE, _MAX_VALUE)
    return jnp.where(jnp.isfinite(rows), bounded - mean, 0)


class ObservationMoments:
    """Moments of the floats and images in observations, and the normalization by them.

        o ↦ clip((o − mean) / √(var + 10⁻⁸), −clip, clip)

    An image is an array `[H, W, C]` of bytes or booleans. Each entry has its own mean
    and variance, also in images. Discrete values, other integers and action masks
    remain as they are. With a `clip` of None nothing is clipped.
    """

    def __init__(self, space: gymnasium.Space, clip: Array | float | None) -> None:
        self._space, self._clip = space, clip
        selected = _normalized_leaves(space)
        self.is_empty = not any(selected)  # whether there are neither floats nor images
        self._pick, self._put = _leaf_selector(selected)

    def initial(self) -> Moments:
        """The moments of no observations."""
        zeros = jax.tree.map(jnp.asarray, spaces.zeros(self._space))
        return Moments.initial(self._pick(zeros))

    def normalize(self, moments: Moments, obs: ArrayTree) -> ArrayTree:
        """The observation with normalized floats and images."""

        def scale_leaf(leaf: Array, mean: Array, variance: Array) -> Array:
            scaled = (leaf - mean) * jax.lax.rsqrt(variance + _EPSILON)
            clip = self._clip
            return scaled if clip is None else jnp.clip(scaled, -clip, clip)

        leaves = self._pick(obs), moments.mean, moments.known_variance
        return self._put(obs, list(map(scale_leaf, *leaves)))

    def update(self, moments: Moments, unroll: Transition) -> Moments:
        """The moments with the observations of an unroll."""
        count = math.prod(unroll.reward.shape)
        leaves = self._pick(unroll.obs)
        rows = [leaf.reshape((count, *leaf.shape[2:])) for leaf in leaves]
        return moments.update(rows) if rows else moments


def discounted_sums(
    before: Float[Array, "B"],
    rewards: PerRow,
    first: Bool[Array, "T B"],
    gamma: Array | float,
) -> tuple[Float[Array, "B"], PerRow]:
    """The running discounted sums Sₜ = rₜ + γ Sₜ₋₁: the last one, and all.

    `before` is the sum before the first step. Where `first`, Sₜ₋₁ is replaced by 0.
    """

    def scan_step(sum_before: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, is_first = step
        new_sum = reward + gamma * jnp.where(is_first, 0.0, sum_before)
        return new_sum, new_sum

    return jax.lax.scan(scan_step, before, (rewards, first))


def _normalized_leaves(space: gymnasium.Space) -> list[bool]:
    """Marks the leaves of an element that are floats or images."""
    shapes = jax.eval_shape(lambda: spaces.zeros(space))

    def is_normalized(leaf: jax.ShapeDtypeStruct) -> bool:
        is_image = leaf.dtype in (jnp.uint8, jnp.bool_) and leaf.ndim == 3
        return is_image or leaf.dtype.kind == "f"

    marks = jax.tree.map(is_normalized, shapes)
    if action_masks.get_mask(shapes) is not None:
        marks = {**marks, action_masks.MASK: False}
    return jax.tree.leaves(marks)


def _leaf_selector(is_selected: list[bool]) -> tuple[Callable, Callable]:
    """Returns `pick(tree) -> selected leaves`, in float32, and `put(tree, leaves)`."""

    def pick(tree: ArrayTree) -> list[Array]:
        return [leaf.astype(jnp.float32) for leaf, selected in pairs(tree) if selected]

    def put(tree: ArrayTree, leaves: list[Array]) -> ArrayTree:
        new = iter(leaves)
        new_leaves = [next(new) if selected else leaf for leaf, selected in pairs(tree)]
        return jax.tree.unflatten(jax.tree.structure(tree), new_leaves)

    def pairs(tree: ArrayTree) -> Iterable[tuple[Array, bool]]:
        return zip(jax.tree.leaves(tree), is_selected, strict=True)

    return pick, put
