"""Action wrappers: repeat, discretize or transform actions."""

from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.environments.wrappers import WrapperState, refuse_mask
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.spaces import describe, zeros
from rlcli.spaces.canonical import canonical_action
from rlcli.types import Array, ArrayTree, Core, Count, Key, Probability, Step, wrap

_MAX_ACTIONS = 10_000  # a larger discrete action space is impractical
_KEPT = ("render", "goal_reward", "frame_stack", "costly_reset")


@register("wrapper")
def sticky_actions(core: Core, *, probability: Probability = 0.25) -> Core:
    """Sticky actions: repeats the last action with probability `probability`.

    The first action of an episode is never replaced (Machado et al., 2018,
    https://arxiv.org/abs/1709.06009). Environments with an action mask are not
    supported.
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
    ) -> Step:
        core_noise, uniform = noise
        last, has_last = state.memory
        sticks = has_last & (uniform < probability)
        action = jax.tree.map(
            lambda old, new: jnp.where(sticks, old, jnp.asarray(new, old.dtype)),
            last,
            action,
        )
        core_state, timestep = core.step(state.core, action, core_noise)
        return WrapperState(core_state, (action, jnp.bool_(True))), timestep

    return wrap(
        core,
        keeps=_KEPT,
        inner_state=lambda state: state.core,
        reset=reset,
        draw=draw,
        step=step,
    )


@register("wrapper", compiled=True)
def action_repeat(core: Core, *, times: Count = 4) -> Core:
    """Action repeat: plays each action `times` times and sums rewards, up to an end.

    Logged values are summed, too.

    Physics parameters and time limits keep their values, but one step of the time limit
    is now `times` steps of the environment. Environments with an action mask are not
    supported.
    """
    refuse_mask(core, "action_repeat")

    def draw(key: Key) -> ArrayTree:
        return jax.vmap(core.draw)(jax.random.split(key, times))

    def step(state: ArrayTree, action: ArrayTree, noise: ArrayTree) -> Step:
        first = jax.tree.map(lambda leaf: leaf[0], noise)
        first_result = core.step(state, action, first)

        def repeat_step(index: Array, carry: tuple) -> tuple:
            state, total = carry
            step_noise = jax.tree.map(lambda leaf: leaf[index], noise)
            after, new = core.step(state, action, step_noise)
            new = new._replace(
                reward=total.reward + new.reward,
                info=jax.tree.map(jnp.add, total.info, new.info),
            )
            is_done = total.last
            return jax.tree.map(
                lambda old, new: jnp.where(is_done, old, new), carry, (after, new)
            )

        return jax.lax.fori_loop(1, times, repeat_step, first_result)

    # Rewards are summed, and frames are skipped.
    return wrap(core, keeps=["render", "costly_reset"], draw=draw, step=step)


@register("wrapper")
def discrete_actions(core: Core, *, bins: Count = 11) -> Core:
    """Discretizes a Box of actions: a grid of `bins` points in each dimension.

    The points are evenly spaced between the bounds, inclusive; a single bin is the
    middle. The digits of action i in base `bins` are the grid indices; the last digit
    is the first dimension.
    """
    low, high = _check_bounds(core.action, "discrete_actions")
    size = low.size
    if bins**size > _MAX_ACTIONS:
        raise RlcliError(
            f"wrapper `discrete_actions` would create {bins}^{size} actions",
            f"use fewer `bins`: at most {_MAX_ACTIONS:,} actions are allowed",
        )
    share = np.linspace(0, 1, bins) if bins > 1 else np.array([0.5])
    points = low + share[:, None] * (high - low)  # [bins, size]
    table = points.astype(np.float32)

    def decode_action(choice: Array) -> Array:
        digits = choice // bins ** np.arange(size) % bins
        flat_action = jnp.asarray(table)[digits, np.arange(size)]
        return flat_action.reshape(core.action.shape or ())

    return _map_action(core, decode_action, spaces.Discrete(bins**size))


@register("wrapper")
def real_actions(core: Core) -> Core:
    """Maps unbounded actions to a bounded Box: a = low + (high − low) σ(x)."""
    low, high = _check_bounds(core.action, "real_actions")
    shape = core.action.shape or ()
    low, high = (bound.reshape(shape).astype(np.float32) for bound in (low, high))

    def bound_action(action: Array) -> Array:
        return low + (high - low) * jax.nn.sigmoid(action)

    real = spaces.Box(-np.inf, np.inf, shape, np.float32)
    return _map_action(core, bound_action, real)


def _map_action(
    core: Core, to_action: Callable[[Array], Array], space: gymnasium.Space
) -> Core:
    """The core with actions of `space`, which `to_action` converts."""

    def step(state: ArrayTree, action: Array, noise: ArrayTree) -> Step:
        return core.step(state, to_action(action), noise)

    return wrap(core, keeps=_KEPT, step=step, action=space)


def _check_bounds(space: gymnasium.Space, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The flat bounds of a Box of floats, float64; raises an error for other spaces."""
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        # The canonical form knows that the largest float is no bound.
        canonical: Any = canonical_action(space).space
        if canonical.is_bounded():
            return space.low.ravel().astype(float), space.high.ravel().astype(float)
    raise RlcliError(
        f"wrapper `{name}` needs a bounded Box of actions of floats, but the "
        f"environment has {describe(space)}",
        "remove it from `wrappers`",
    )
