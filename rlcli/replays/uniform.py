"""Uniform experience replay."""

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Int32, UInt32

from rlcli.registry import register
from rlcli.replays.dataset import Fraction, mix_dataset, split_batch
from rlcli.replays.datasets.names import DataFile
from rlcli.replays.datasets.recipe_dataset import Dataset
from rlcli.replays.rings import Windows, step_ring
from rlcli.types import Array, ArrayTree, Divided, Key, Replay, Transition


@register("replay")
def uniform(
    window: int,
    unroll: int,
    num_envs: int,
    *,
    capacity: Divided = 50_000,
    batch_size: Divided = 32,
    replacement: bool = True,
    prefill: DataFile | None = None,
    prefill_fraction: Fraction | None = None,
) -> Replay:
    """Uniform replay: samples the newest `capacity` steps uniformly (Lin, 1992).

    Stores raw steps, one unroll at a time, and samples windows of `window` consecutive
    steps that do not cross the head of the ring: `[window, batch_size, ...]`. Without
    `replacement` no window occurs twice in a batch; while there are fewer than
    `batch_size` windows, the rest of the batch has weight 0. `prefill` is a file of
    `rlcli collect`, relative to the recipe: its steps are the first in the ring. With
    `prefill_fraction` they are not in the ring but kept, and this fraction of each
    batch is drawn from them: half of it in RLPD (Ball et al., 2023,
    https://arxiv.org/abs/2302.02948).
    """
    ring = step_ring(capacity, unroll, num_envs)
    ring.check_rows("uniform", capacity, window, "the tracer needs")
    own, rows = split_batch(batch_size, prefill, prefill_fraction)
    replay = uniform_replay(Windows(ring, window), capacity, own, replacement)
    replay = replay._replace(
        redivide=ring.redivide,
        traits=replay.traits._replace(dataset=prefill and Dataset.parse(prefill)),
    )
    return mix_dataset(replay, window, prefill, rows)


def uniform_replay(
    windows: Windows, capacity: int, batch_size: int, replacement: bool
) -> Replay:
    """A replay that samples the windows of a ring uniformly."""
    ring, num_envs = windows.ring, windows.ring.num_envs

    def draw(key: Key) -> UInt32[Array, "N"]:
        return jax.random.bits(key, (batch_size,))

    def sample(
        state: ArrayTree, count: Int[Array, ""], noise: UInt32[Array, "N"]
    ) -> tuple[Transition, Float[Array, "T N"], ArrayTree]:
        first, number = windows.available(count)
        choose = sample_indices if replacement else sample_distinct_indices
        index, is_valid = choose(noise, number * num_envs)
        start = first + index // num_envs * windows.stride
        steps, is_complete = ring.take(state, start, index % num_envs, windows.span)
        weight = (is_valid & is_complete).astype(jnp.float32)
        return steps, jnp.broadcast_to(weight, (windows.span, batch_size)), index

    return Replay(
        ring.init,
        draw,
        ring.add,
        sample,
        reweigh=lambda state, index, priority: state,  # probabilities are constant
        traits=windows.traits(capacity, batch_size),
        contents=ring.contents,
    )


def sample_indices(
    bits: UInt32[Array, "N"], number: Int[Array, ""]
) -> tuple[Int32[Array, "N"], Bool[Array, "N"]]:
    """Indices below `number` from random bits, and a mask of valid ones (all).

    Remainders of 32 random bits: the bias is at most `number` / 2³².
    """
    index = (bits % number.astype(jnp.uint32)).astype(jnp.int32)
    return index, jnp.ones(bits.shape, bool)


def sample_distinct_indices(
    bits: UInt32[Array, "N"], number: Int[Array, ""]
) -> tuple[Int32[Array, "N"], Bool[Array, "N"]]:
    """Distinct indices below `number`: Floyd's algorithm (Bentley, 1987), and a mask.

    Every set of N indices is equally likely. Draw i is a random tᵢ ≤ jᵢ = `number` − N
    + i, or jᵢ if an earlier draw took tᵢ; no earlier draw can have taken jᵢ. If
    `number` is less than N, the first draws are invalid.
    """
    order = jnp.arange(bits.shape[0], dtype=jnp.int32)
    largest = number - bits.shape[0] + order
    is_valid = largest >= 0
    draw = bits % jnp.maximum(largest + 1, 1).astype(jnp.uint32)
    draw = draw.astype(jnp.int32)
    # A duplicate of an equal earlier draw …
    is_same = (draw[:, None] == draw) & is_valid & (order < order[:, None])
    is_duplicate = jnp.any(is_same, axis=1)
    # … or of an earlier draw that was itself replaced by its j, recursively.
    earlier = draw - largest[0]
    is_linked = (earlier >= 0) & (earlier < order)
    link = jnp.where(is_linked, earlier, order)
    for _ in range(max(bits.shape[0] - 1, 1).bit_length()):
        is_duplicate, link = is_duplicate | is_duplicate[link], link[link]
    return jnp.where(is_valid, jnp.where(is_duplicate, largest, draw), 0), is_valid
