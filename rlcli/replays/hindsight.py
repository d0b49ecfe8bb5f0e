"""Hindsight experience replay (HER)."""

import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Bool, Float, Int, Int32, UInt32

from rlcli.registry import register
from rlcli.replays.rings import Windows, step_ring
from rlcli.replays.uniform import sample_indices
from rlcli.types import Array, ArrayTree, Count, Key, Replay, Transition

Strategy = Literal["future", "final", "episode"]


class NumberedStep(NamedTuple):
    """A step, and the number of its episode in its environment."""

    step: Transition
    episode: Int32[Array, "*T B"]


class HindsightState(NamedTuple):
    """The state of the replay. Episode n of an environment is at place n mod `rows`."""

    steps: ArrayTree  # ring state
    start: Int32[Array, "places B"]  # the time of the first step of each episode
    end: Int32[Array, "places B"]  # the time of its last step, so far
    episode: Int32[Array, "B"]  # the number of the current episode


class HindsightNoise(NamedTuple):
    """The random bits of one sample."""

    window: UInt32[Array, "N"]
    is_relabelled: UInt32[Array, "N"]
    goal: UInt32[Array, "N"]


@register("replay")
def hindsight(
    window: int,
    unroll: int,
    num_envs: int,
    goal_reward: Callable[[ArrayTree, ArrayTree], tuple[Array, Array]],
    *,
    strategy: Strategy = "future",
    k: Annotated[int, Ge(0)] = 4,
    capacity: Count = 50_000,
    batch_size: Count = 32,
) -> Replay:
    """Hindsight experience replay (HER): replaces goals by goals that were achieved.

    Samples uniformly, as the replay `uniform`. Of k + 1 samples, k get another goal on
    average: one that the agent achieved in the same episode. Reward and discount follow
    from the environment's `goal_reward`, so failures for one goal become successes for
    another (Andrychowicz et al., 2017, https://arxiv.org/abs/1707.01495). The
    environment needs `goal_reward` and the observations `observation`, `achieved_goal`
    and `desired_goal`. All steps of a window get the same goal. Steps of an unfinished
    episode count, too.

    Args:
        strategy: where the new goal is achieved: `future`, by the step itself or a
            later one; `final`, by the last step of the episode; `episode`, by any step
            of it that is stored.
        k: the number of samples with a new goal for each one with its own.
        capacity: the number of stored steps.
        batch_size: the number of windows in a sample.
    """
    ring = step_ring(capacity, unroll, num_envs)
    ring.check_rows("hindsight", capacity, window, "the tracer needs")
    windows = Windows(ring, window)

    def init(steps: Transition) -> HindsightState:
        zeros = jnp.zeros((ring.rows, num_envs), jnp.int32)
        episode = jnp.zeros(steps.first.shape, jnp.int32)
        return HindsightState(
            ring.init(NumberedStep(steps, episode)),
            zeros,
            zeros,
            jnp.zeros(num_envs, jnp.int32),
        )

    def add(
        state: HindsightState, steps: Transition, count: Int[Array, ""]
    ) -> HindsightState:
        time = count * unroll + jnp.arange(unroll, dtype=jnp.int32)[:, None]
        time = jnp.broadcast_to(time, steps.first.shape)
        episode = state.episode + jnp.cumsum(steps.first, axis=0, dtype=jnp.int32)
        place, environment = episode % ring.rows, jnp.arange(num_envs)
        first_place = jnp.where(steps.first, place, ring.rows)  # else not written
        start, end = jnp.asarray(state.start), jnp.asarray(state.end)
        return HindsightState(
            ring.add(state.steps, NumberedStep(steps, episode), count),
            start.at[first_place, environment].set(time, mode="drop"),
            # The largest time: several steps may be of one episode.
            end.at[place, environment].max(time),
            episode[-1],
        )

    def draw(key: Key) -> HindsightNoise:
        return HindsightNoise(*jax.random.bits(key, (3, batch_size)))

    def sample(
        state: HindsightState, count: Int[Array, ""], noise: HindsightNoise
    ) -> tuple[Transition, Float[Array, "T N"], ArrayTree]:
        first, number = windows.available(count)
        index, _ = sample_indices(noise.window, number * num_envs)
        start, environment = first + index // num_envs, index % num_envs
        numbered, _ = ring.take(state.steps, start, environment, window)
        place = numbered.episode[0] % ring.rows
        end = state.end[place, environment]
        begin = {
            "future": start,
            "final": end,
            "episode": jnp.maximum(
                state.start[place, environment], windows.oldest_start(count)
            ),
        }[strategy]
        length = (end - begin + 1).astype(jnp.uint32)
        time = begin + (noise.goal % length).astype(jnp.int32)
        achieving, _ = ring.take(state.steps, time, environment, 1)
        goal = achieving.step.next_obs["achieved_goal"]
        goal = jax.tree.map(lambda leaf: leaf[0], goal)
        is_relabelled = noise.is_relabelled % jnp.uint32(k + 1) != 0

        def choose(new: ArrayTree, old: ArrayTree) -> ArrayTree:
            return jax.tree.map(functools.partial(_select, is_relabelled), new, old)

        def with_goal(obs: dict[str, ArrayTree]) -> dict[str, ArrayTree]:
            return {**obs, "desired_goal": choose(goal, obs["desired_goal"])}

        steps = numbered.step
        rewards = jax.vmap(jax.vmap(goal_reward), (0, None))
        reward, discount = rewards(steps.next_obs["achieved_goal"], goal)
        relabelled = steps._replace(
            obs=with_goal(steps.obs),
            next_obs=with_goal(steps.next_obs),
            reward=choose(reward, steps.reward),
            discount=choose(discount, steps.discount),
            # A row ends where the new goal is achieved, and where the episode ended.
            last=steps.last | choose(discount == 0, jnp.zeros_like(steps.last)),
        )
        return relabelled, jnp.ones((window, batch_size)), index

    def contents(state: Any, count: int, most: int) -> tuple[int, Transition]:
        stored, rows = ring.contents(state.steps, count, most)
        return stored, rows.step

    return Replay(
        init,
        draw,
        add,
        sample,
        reweigh=lambda state, index, priority: state,  # probabilities are constant
        traits=windows.traits(capacity, batch_size),
        contents=contents,
    )


def _select(columns: Bool[Array, "N"], new: Array, old: Array) -> Array:
    """The new values in these columns of `[T, N, ...]`, the old ones elsewhere."""
    mask = columns.reshape((-1, *[1] * (old.ndim - 2)))
    return jnp.where(mask, new, old).astype(old.dtype)
