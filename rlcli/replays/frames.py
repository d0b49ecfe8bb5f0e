"""Replay of stacked frames that stores each frame once."""

from typing import Literal, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int, Int32, Shaped

from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.replays.rings import Ring, Windows, step_ring
from rlcli.replays.uniform import uniform_replay
from rlcli.types import Array, ArrayTree, Count, Divided, FrameStack, Replay, Transition

Padding = Literal["repeat", "zero"]


class FrameOptions(TypedDict, total=False):
    """Options of `frames` for stacked observations."""

    stack: Count
    axis: int
    padding: Padding
    ends: Count


@register("replay", starts_empty="cannot begin within an episode, without its frames")
def frames(
    window: int,
    unroll: int,
    num_envs: int,
    *,
    capacity: Divided = 50_000,
    batch_size: Divided = 32,
    replacement: bool = True,
    stack: Count = 4,
    axis: int = -1,
    padding: Padding = "repeat",
    ends: Divided | None = None,
) -> Replay:
    """Frame replay: `uniform` for stacked observations, storing each frame once.

    An observation stacks the newest `stack` frames along `axis`, the oldest first; only
    the newest frame is stored (Mnih et al., 2015,
    https://doi.org/10.1038/nature14236). `padding` fills the stack at the beginning of
    an episode: `repeat` repeats its first frame, `zero` uses zeros. `next_obs` is
    rebuilt from the next step's frame, so the newest step of each environment cannot be
    sampled yet. At the end of an episode, the next step belongs to another episode, so
    the true last frame is stored separately, for the newest `ends` episodes (by default
    1/16 of the capacity). A window whose last frame has been overwritten has weight 0.
    Samples equal those of `uniform`, with 1 / (2 · `stack`) of the memory. An action
    mask is not a stack, and is stored whole.
    """
    ring = frame_ring(capacity, unroll, num_envs, stack, axis, padding, ends)
    windows = Windows(ring, window)
    ring.check_rows("frames", capacity, windows.min_steps, "it needs")
    return uniform_replay(windows, capacity, batch_size, replacement)


class _FrameRingState(NamedTuple):
    """The newest frame of each step, and the last frames of episodes.

    Action masks are beside the frames, as in observations.
    """

    steps: ArrayTree  # ring state: steps without `next_obs`, and episode numbers
    finals: ArrayTree  # `[places, ...]`: last frames of episodes
    ended: Int32[Array, ""]  # number of finished episodes, of all environments


def frame_ring(
    capacity: int,
    unroll: int,
    num_envs: int,
    stack: int = 4,
    axis: int = -1,
    padding: Padding = "repeat",
    ends: int | None = None,
) -> Ring:
    """A ring buffer of steps with stacked frames, each frame stored once."""
    size = unroll * num_envs
    inner = step_ring(capacity, unroll, num_envs)
    # At least `size`: the episodes that end in one unroll never share a place.
    places = max(ends or inner.rows * num_envs // 16, size)

    def newest_frame(obs: Shaped[Array, "T B ..."]) -> Shaped[Array, "T B ..."]:
        shape = obs.shape[2:]
        if not -len(shape) <= axis < len(shape) or shape[axis] % stack:
            raise RlcliError(
                f"replay `frames` cannot split an observation of shape {shape} into "
                f"{stack} frames along axis {axis}",
                "set `replay.stack` to their number, `replay.axis` to their axis",
            )
        place = axis % len(shape) + 2
        depth = obs.shape[place] // stack
        return jax.lax.slice_in_dim(obs, (stack - 1) * depth, None, axis=place)

    def newest(obs: ArrayTree) -> ArrayTree:
        frame = jax.tree.map(newest_frame, action_masks.remove_mask(obs))
        return action_masks.add_mask(frame, action_masks.get_mask(obs))

    def to_frames(
        steps: Transition, number: Int[Array, "..."]
    ) -> tuple[Transition, Int[Array, "T B"]]:
        number = number.reshape(steps.last.shape)
        return steps._replace(obs=newest(steps.obs), next_obs=()), number

    def init(steps: Transition) -> _FrameRingState:
        def empty_rows(leaf: Array) -> Array:
            return jnp.zeros((places, *leaf.shape[2:]), leaf.dtype)

        number = jnp.zeros(steps.last.shape, jnp.int32)
        finals = jax.tree.map(empty_rows, newest(steps.next_obs))
        return _FrameRingState(
            inner.init(to_frames(steps, number)), finals, jnp.int32(0)
        )

    def add(
        state: _FrameRingState, steps: Transition, count: Int[Array, ""]
    ) -> _FrameRingState:
        last = steps.last.reshape(-1)
        number = state.ended + jnp.cumsum(last, dtype=jnp.int32) - 1
        place = jnp.where(last, number % places, places)  # out of range: not written

        def write(old: jax.Array, new: Array) -> Array:
            rows = new.reshape((size, *old.shape[1:]))
            return old.at[place].set(rows, mode="drop")

        return _FrameRingState(
            inner.add(state.steps, to_frames(steps, number), count),
            jax.tree.map(write, state.finals, newest(steps.next_obs)),
            state.ended + jnp.sum(last, dtype=jnp.int32),
        )

    def take(
        state: _FrameRingState,
        start: Int[Array, "N"],
        environment: Int[Array, "N"],
        span: int,
    ) -> tuple[Transition, Bool[Array, "N"]]:
        # Takes the frames from the oldest one of the first observation to the one after
        # the last step. An episode begins at time 0, so times before 0 are never used.
        early_start = start - (stack - 1)
        (rows, number), _ = inner.take(
            state.steps, early_start, environment, span + stack
        )
        times = jnp.arange(rows.first.shape[0])[:, None]
        episode_start = jax.lax.cummax(jnp.where(rows.first, times, 0))[stack - 1 :]

        def stack_rows(frames: Shaped[Array, "T N ..."]) -> Array:
            stacked_frames = []
            for age in reversed(range(stack)):
                frame_times = times[stack - 1 :] - age
                # Frames before the start belong to another episode: they are padding.
                index = jnp.maximum(frame_times, episode_start)
                index = index.reshape(index.shape + (1,) * (frames.ndim - 2))
                frame = jnp.take_along_axis(frames, index, axis=0)
                if padding == "zero":
                    in_episode = (frame_times >= episode_start).reshape(index.shape)
                    frame = jnp.where(in_episode, frame, jnp.zeros_like(frame))
                stacked_frames.append(frame)
            return jnp.concatenate(stacked_frames, axis=axis % (frames.ndim - 2) + 2)

        # `[span + 1, N, ...]`
        observations = jax.tree.map(stack_rows, action_masks.remove_mask(rows.obs))
        masks = jax.tree.map(
            lambda leaf: leaf[stack - 1 :], action_masks.get_mask(rows.obs)
        )
        steps, number = jax.tree.map(
            lambda leaf: leaf[stack - 1 : stack - 1 + span],
            (rows._replace(obs=()), number),
        )
        finals = jax.tree.map(lambda leaf: leaf[number % places], state.finals)

        def stack_next(observations: Array, final: Array) -> Array:
            # At the end of an episode, the observation without its oldest frame,
            # followed by the last one; `observations` has one row more.
            place = axis % (observations.ndim - 2) + 2
            depth = final.shape[place]
            rest = jax.lax.slice_in_dim(observations[:-1], depth, None, axis=place)
            ending = jnp.concatenate([rest, final], axis=place)
            last = steps.last.reshape(steps.last.shape + (1,) * (final.ndim - 2))
            return jnp.where(last, ending, observations[1:])

        is_overwritten = steps.last & (number < state.ended - places)
        next_masks = jax.tree.map(
            lambda final, mask: jnp.where(steps.last[..., None], final, mask[1:]),
            action_masks.get_mask(finals),
            masks,
        )
        return steps._replace(
            obs=jax.tree.map(
                lambda leaf: leaf[:-1], action_masks.add_mask(observations, masks)
            ),
            next_obs=action_masks.add_mask(
                jax.tree.map(
                    stack_next, observations, action_masks.remove_mask(finals)
                ),
                next_masks,
            ),
        ), ~jnp.any(is_overwritten, axis=0)

    facts = {"start_margin": stack - 1, "end_margin": 1}
    facts |= {"frame_stack": FrameStack(stack, axis, padding)}
    return inner._replace(init=init, add=add, take=take, **facts)
