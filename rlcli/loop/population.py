"""Population: exploit and explore, pure functions on the stacked state of a program.

N members are trained in one program, each with S seeds: row n S + s of every array is
seed s of member n. In population-based training (PBT), the worst members copy the state
of the best ones after a number of steps (*exploit*), and their numbers, such as the
learning rate, change at random (*explore*) (Jaderberg et al., 2017,
https://arxiv.org/abs/1711.09846).

The copy is complete: the state of the environments, of the policy and of the replay
belong together. The members have the same seeds, and random numbers depend on seed and
step only. So a member is, up to rounding, the run of a single recipe in which its
numbers follow a schedule.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Float32, Int

from rlcli.loop.progress import Progress
from rlcli.types import Array, Key

QUANTILE = 0.2  # the share of the members that copy, and of those that are copied
RESAMPLE = 0.25  # the probability that a number is drawn anew
FACTORS = 0.8, 1.2  # of a number with a logarithmic range
SHIFT = 0.2  # of any other number, as a share of its range


class Noise(NamedTuple):
    """The random numbers of a round: all in [0, 1)."""

    parent: Float32[Array, "N"]  # selects one of the best members
    direction: Float32[Array, "N K"]  # below 1/2: the number decreases
    resample: Float32[Array, "N K"]
    value: Float32[Array, "N K"]  # as a share of the range


class Ranges(NamedTuple):
    """The ranges of the K options that are searched."""

    low: Float32[Array, "K"]
    high: Float32[Array, "K"]
    is_log: Bool[Array, "K"]


def draw_noise(key: Key, members: int, options: int) -> Noise:
    """The random numbers of a round for N members and K options."""
    keys = jax.random.split(key, 4)
    shape = members, options
    return Noise(
        jax.random.uniform(keys[0], (members,)),
        *(jax.random.uniform(each, shape) for each in keys[1:]),
    )


def select_parents(
    scores: Float[Array, "N"], is_alive: Bool[Array, "N"], noise: Float32[Array, "N"]
) -> Int[Array, "N"]:
    """The member whose state each member copies, or its own index if it copies none.

    Each of the worst fifth copies one of the best fifth, at least one, if that is
    better. Members that are not alive take no part. Of equal scores, the first is
    better.
    """
    members = len(scores)
    # By descending score, those that are not alive at the end; stable.
    order = jnp.lexsort((-scores, ~is_alive))
    rank = jnp.argsort(order)
    alive = jnp.sum(is_alive)
    count = jnp.maximum(1, jnp.floor(QUANTILE * alive).astype(jnp.int32))
    count = jnp.minimum(count, alive // 2)
    best = jnp.minimum((noise * count).astype(jnp.int32), jnp.maximum(count - 1, 0))
    candidate = order[best]
    copies = is_alive & (rank >= alive - count) & (scores[candidate] > scores)
    return jnp.where(copies, candidate, jnp.arange(members))


def exploit(progress: Progress, parents: Int[Array, "N"], seeds: int) -> Progress:
    """The progress of all members, each with the state and the numbers of its parent.

    The rows after those of the N members, padding for equal devices, repeat the last.
    """
    rows = (parents[:, None] * seeds + jnp.arange(seeds)).ravel()
    padding = progress.numbers.shape[0] - rows.shape[0]
    rows = jnp.concatenate([rows, jnp.repeat(rows[-1:], padding)])
    fields = progress._asdict()
    own = {name: fields.pop(name) for name in ("iteration", "position", "seed", "data")}
    return Progress(**own, **jax.tree.map(lambda leaf: leaf[rows], fields))


def explore(
    values: Float32[Array, "N K"],
    has_copied: Bool[Array, "N"],
    noise: Noise,
    ranges: Ranges,
) -> Float32[Array, "N K"]:
    """The numbers of all members, changed for those that have copied another one.

    With probability 1/4 a number is drawn anew from its range. Otherwise, equally
    likely, it decreases or increases: by the factor 0.8 or 1.2 if its range is
    logarithmic, else by a fifth of its range. It stays in its range.
    """
    low, high = ranges.low, ranges.high
    increases = noise.direction >= 0.5
    scaled = values * jnp.where(increases, FACTORS[1], FACTORS[0])
    shifted = values + jnp.where(increases, SHIFT, -SHIFT) * (high - low)
    # A logarithm of what is not positive would be nan, also where it is not used.
    ratio = jnp.where(ranges.is_log, high / jnp.where(ranges.is_log, low, 1.0), 1.0)
    drawn = jnp.where(
        ranges.is_log, low * ratio**noise.value, low + noise.value * (high - low)
    )
    changed = jnp.where(ranges.is_log, scaled, shifted)
    changed = jnp.where(noise.resample < RESAMPLE, drawn, changed)
    changed = jnp.clip(changed, low, high)
    return jnp.where(has_copied[:, None], changed, values)
