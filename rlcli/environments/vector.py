"""The vector: one core made into B environments that restart by themselves.

A core knows its task and nothing else. Here it gets the batch axis, the time limit and
the auto-reset, and here all random numbers of a step are drawn, once per batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlcli.types import Array, ArrayTree, Environment, Key, TimeStep, key_as_noise
from rlcli.xla.random_bits import unroll_key


class VectorState(NamedTuple):
    """What B environments remember."""

    core: ArrayTree  # the core's own state, `[B, ...]`
    elapsed: Array  # int32[B]: steps of the episode so far
    # With `rendering` the core's state that the last step led to, before any reset.
    final: ArrayTree = ()


class VectorNoise(NamedTuple):
    """Everything random of one step of B environments, `[B, ...]`."""

    restart: ArrayTree  # state and observation to restart from, where the episode ends
    core: ArrayTree  # what the core itself draws for a step


def vector(
    core_of: Callable[[Mapping[str, Array]], Environment],
    num_envs: int,
    *,
    time_limit: int | None = None,
    each: Mapping[str, Array] | None = None,
    rendering: bool = False,
) -> Environment:
    """Runs `num_envs` copies of a core, each restarting when its episode ends.

    At the time limit, and where a step says `cut`, an episode is truncated: `last`, but
    `discount` stays 1. Where `last`, `next_obs` is the true final observation and `obs`
    the new episode's first.
    Environment i draws from (key, i) alone: more of them change nothing for the others.

    Args:
        core_of: makes the core from the values of `each`, which are traced.
        time_limit: steps after which an episode is truncated; None: never.
        each: options by environment, `[n]` each: environment i takes value i mod n.
        rendering: whether to store final states, for `render_final`.
    """
    each = each or {}

    # Functions, which are traced: as constants they would be held before any program
    # runs, be there a billion environments.
    def environments() -> Array:
        return jnp.arange(num_envs)

    def values_of(index: int | Array) -> dict[str, Array]:
        return {
            name: jnp.asarray(options)[index % len(options)]
            for name, options in each.items()
        }

    # Even numbers are for resets and odd ones for steps, with one hash for either.
    reset_keys = jax.vmap(lambda key, i: jax.random.fold_in(key, 2 * i), (None, 0))
    step_keys = jax.vmap(lambda key, i: jax.random.fold_in(key, 2 * i + 1), (None, 0))
    core_reset = jax.vmap(lambda values, key: core_of(values).reset(key))
    core_draw = jax.vmap(lambda values, key: core_of(values).draw(key))
    core_step = jax.vmap(lambda values, *rest: core_of(values).step(*rest))

    def final_of(core: ArrayTree) -> ArrayTree:
        return core if rendering else ()

    def reset(key: Key) -> tuple[VectorState, ArrayTree]:
        key = unroll_key(key)
        indices = environments()
        core, obs = core_reset(values_of(indices), reset_keys(key, indices))
        return VectorState(core, jnp.zeros(num_envs, jnp.int32), final_of(core)), obs

    def draw(key: Key) -> VectorNoise:
        key = unroll_key(key)
        indices = environments()
        values = values_of(indices)
        fresh = core_reset(values, reset_keys(key, indices))
        return VectorNoise(fresh, core_draw(values, step_keys(key, indices)))

    def step(
        state: VectorState, action: Array, noise: VectorNoise, cut: Array | bool = False
    ) -> tuple[VectorState, TimeStep]:
        values = values_of(environments())
        core, timestep = core_step(values, state.core, action, noise.core)
        elapsed = state.elapsed + 1
        last = timestep.last | cut
        if time_limit is not None:
            last = last | (elapsed >= time_limit)
        final = final_of(core)
        core, obs = _select_per_environment(
            last, noise.restart, (core, timestep.next_obs)
        )
        elapsed = jnp.where(last, 0, elapsed)
        state = VectorState(core, elapsed, final)
        return state, timestep._replace(obs=obs, last=last)

    def picture(core: ArrayTree, index: int) -> Any:
        one = jax.tree.map(lambda leaf: leaf[index], core)
        return core_of(values_of(index)).render(one)

    def render(state: VectorState, index: int = 0) -> Any:
        return picture(state.core, index)

    def render_final(state: VectorState, index: int = 0) -> Any:
        return picture(state.final, index) if rendering else None

    # Only spaces are read of it, and no `each` shapes one.
    example = core_of(values_of(0))
    return Environment(
        reset=reset,
        step=step,
        observation=example.observation,
        action=example.action,
        render=render,
        num_envs=num_envs,
        draw=draw,
        render_final=render_final,
    )


def rendering_option(factory: Callable, rendering: bool) -> dict[str, bool]:
    """`{"rendering": True}` for a core's factory that stores details for pictures."""
    known = inspect.signature(factory).parameters.get("rendering")
    takes = known is not None and known.kind is not inspect.Parameter.KEYWORD_ONLY
    return {"rendering": True} if rendering and takes else {}


def keyed_environment(env: Environment) -> Environment:
    """The same environment, stepped with a key: `step(state, action, key)`."""

    def step(
        state: ArrayTree, action: Array, key: Key, cut: Array | bool = False
    ) -> tuple[ArrayTree, TimeStep]:
        return env.step(state, action, env.draw(key), cut)

    return env._replace(step=step, draw=key_as_noise)


def _select_per_environment(
    condition: Array, new: ArrayTree, old: ArrayTree
) -> ArrayTree:
    """Takes `new` where `condition` `[B]` holds, leaf by leaf, `[B, ...]` each."""

    def choose(new: Array, old: Array) -> Array:
        mask = condition.reshape(condition.shape + (1,) * (jnp.ndim(old) - 1))
        return jnp.where(mask, new, old)

    return jax.tree.map(choose, new, old)
