"""Wrappers of actions: what becomes of an action on its way to the environment."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.environments.wrappers import WrapperState, refuse_mask
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.spaces import describe, zeros
from rlcli.types import Array, ArrayTree, Count, Environment, Key, Probability, TimeStep

_MAX_ACTIONS = 10_000  # discrete actions: more would be no small set any more


@register("wrapper")
def sticky_actions(
    core: Environment, *, probability: Probability = 0.25
) -> Environment:
    """Repeats the last action instead of the new one, now and then.

    Never in an episode's first step, which has no last action (Machado et al., 2018,
    https://arxiv.org/abs/1709.06009). Not where actions may be forbidden.
    """
    refuse_mask(core, "sticky_actions")

    def reset(key: Key) -> tuple[WrapperState, ArrayTree]:
        state, obs = core.reset(key)
        return WrapperState(state, (zeros(core.action), jnp.bool_(False))), obs

    def draw(key: Key) -> tuple[ArrayTree, Array]:
        core_key, stick_key = jax.random.split(key)
        return core.draw(core_key), jax.random.uniform(stick_key)

    def step(
        state: WrapperState, action: ArrayTree, noise: tuple[ArrayTree, Array]
    ) -> tuple[WrapperState, TimeStep]:
        core_noise, uniform = noise
        last, has_last = state.memory
        sticks = has_last & (uniform < probability)
        action = jax.tree.map(
            lambda old, new: jnp.where(sticks, old, jnp.asarray(new, old.dtype)),
            last,
            action,
        )
        inner, timestep = core.step(state.core, action, core_noise)
        return WrapperState(inner, (action, jnp.bool_(True))), timestep

    return core._replace(
        reset=reset, draw=draw, step=step, render=lambda state: core.render(state.core)
    )


@register("wrapper")
def action_repeat(core: Environment, *, times: Count = 4) -> Environment:
    """Plays each action several times, and adds up the rewards, until an end.

    What the core logs is added up, too.

    Physics parameters and time limits stay those of the core, but a time limit counts
    decisions: one of `times` steps each. Not where actions may be forbidden.
    """
    refuse_mask(core, "action_repeat")

    def draw(key: Key) -> ArrayTree:
        return jax.vmap(core.draw)(jax.random.split(key, times))

    def step(
        state: ArrayTree, action: ArrayTree, noise: ArrayTree
    ) -> tuple[ArrayTree, TimeStep]:
        first = jax.tree.map(lambda leaf: leaf[0], noise)
        first_result = core.step(state, action, first)

        def repeat_step(index: int, carry: tuple) -> tuple:
            state, so_far = carry
            step_noise = jax.tree.map(lambda leaf: leaf[index], noise)
            after, new = core.step(state, action, step_noise)
            new = new._replace(
                reward=so_far.reward + new.reward,
                info=jax.tree.map(jnp.add, so_far.info, new.info),
            )
            is_done = so_far.last
            return jax.tree.map(
                lambda old, new: jnp.where(is_done, old, new), carry, (after, new)
            )

        return jax.lax.fori_loop(1, times, repeat_step, first_result)

    return core._replace(draw=draw, step=step)


@register("wrapper")
def discrete_actions(core: Environment, *, bins: Count = 11) -> Environment:
    """A Box of actions as a finite choice: a grid of `bins` points in each dimension.

    The points are evenly spaced from bound to bound; one bin is the middle. Choice i
    has its digits in base `bins`, the first dimension's last.
    """
    low, high = _check_bounds(core.action, "discrete_actions")
    size = low.size
    if bins**size > _MAX_ACTIONS:
        raise RlcliError(
            f"wrapper `discrete_actions` would make {bins}^{size} actions",
            f"choose fewer `bins`: at most {_MAX_ACTIONS:,} actions make a choice",
        )
    share = np.linspace(0, 1, bins) if bins > 1 else np.array([0.5])
    points = low + share[:, None] * (high - low)  # [bins, size]
    table = points.astype(np.float32)

    def action_of(choice: Array) -> Array:
        digits = choice // bins ** np.arange(size) % bins
        flat_action = jnp.asarray(table)[digits, np.arange(size)]
        return flat_action.reshape(core.action.shape or ())

    def step(
        state: ArrayTree, action: Array, noise: ArrayTree
    ) -> tuple[ArrayTree, TimeStep]:
        return core.step(state, action_of(action), noise)

    return core._replace(step=step, action=spaces.Discrete(bins**size))


@register("wrapper")
def real_actions(core: Environment) -> Environment:
    """A Box of actions stretched over all reals: a = low + (high − low) σ(x)."""
    low, high = _check_bounds(core.action, "real_actions")
    shape = core.action.shape or ()
    low, high = (bound.reshape(shape).astype(np.float32) for bound in (low, high))

    def step(
        state: ArrayTree, action: Array, noise: ArrayTree
    ) -> tuple[ArrayTree, TimeStep]:
        bounded_action = low + (high - low) * jax.nn.sigmoid(action)
        return core.step(state, bounded_action, noise)

    return core._replace(
        step=step, action=spaces.Box(-np.inf, np.inf, shape, np.float32)
    )


def _check_bounds(space: gymnasium.Space, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of a Box, flat, in doubles; an error for what has none."""
    if isinstance(space, spaces.Box) and space.is_bounded():
        return space.low.ravel().astype(float), space.high.ravel().astype(float)
    raise RlcliError(
        f"wrapper `{name}` needs a bounded Box of actions, and the environment has "
        f"{describe(space)}",
        "leave it out of `wrappers`",
    )
