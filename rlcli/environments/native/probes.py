"""Probe environments: minimal environments with known values, one per question.

An agent that learns a wrong value on a probe has a bug, and the probe locates it. γ is
the tracer's discount. Observations are float32 `[1]`.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, Core, Key


class ProbeState(NamedTuple):
    """The state of a probe."""

    shown: Array  # float32[1]: the observation
    cue: Array  # float32: −1 or 1, drawn at reset
    time: Array  # int32: steps of the episode so far


@register("environment", "probe-constant-reward")
def constant_reward() -> Core:
    """Constant reward, one step: does the value function learn at all?

    Observation 0, reward 1: v(0) = q(0, 0) = q(0, 1) = 1.
    """
    return _probe(lambda cue, time: 0.0 * cue, lambda cue, time, action: 1.0)


@register("environment", "probe-reward-depends-on-observation")
def reward_depends_on_observation() -> Core:
    """Reward equal to the observation, one step: does the network use its input?

    The observation is −1 or 1 with probability 1/2 each, and so is the reward: v(±1) =
    ±1, q(±1, 0) = q(±1, 1) = ±1.
    """
    return _probe(lambda cue, time: cue, lambda cue, time, action: cue)


@register("environment", "probe-two-steps")
def two_steps() -> Core:
    """Reward after two steps: do values bootstrap, and is γ applied correctly?

    Observation 0, then 1; reward 0, then 1: v(0) = γ, v(1) = 1.
    """
    return _probe(
        lambda cue, time: jnp.minimum(time, 1).astype(jnp.float32),
        lambda cue, time, action: time.astype(jnp.float32),
        steps=2,
    )


@register("environment", "probe-reward-depends-on-action")
def reward_depends_on_action() -> Core:
    """Reward set by the action, one step: are actions distinguished and improved?

    Observation 0; reward −1 for action 0, 1 for action 1: q(0, 0) = −1, q(0, 1) = 1.
    The optimal policy takes action 1: its v(0) = 1.
    """
    return _probe(
        lambda cue, time: 0.0 * cue,
        lambda cue, time, action: jnp.where(action == 1, 1.0, -1.0),
    )


@register("environment", "probe-truncation", time_limit=5)
def truncation() -> Core:
    """Time limit without termination: are truncation and termination distinguished?

    Observation 0, reward 1: v(0) = 1 / (1 − γ). An agent that treats truncation as
    termination learns less: (1 − γⁿ) / (1 − γ) with 1 ≤ n ≤ 5 steps left.
    """
    return _probe(
        lambda cue, time: 0.0 * cue, lambda cue, time, action: 1.0, steps=None
    )


@register("environment", "probe-needs-memory")
def needs_memory(*, delay: Annotated[int, Ge(0)] = 1) -> Core:
    """Asks for the first observation at the end: does the recurrent state carry it?

    The first observation is −1 or 1 with probability 1/2 each, followed by 0 for
    `delay` steps. The reward of the last action is 1 if it was 0 after −1, or 1 after
    1, else −1. All other rewards are 0. With memory the optimal policy has v(±1) = γᵈ
    with d = `delay`, and every episode returns 1. Without memory every policy has v =
    0, unless `delay` is 0.
    """

    def reward(cue: Array, time: Array, action: Array) -> Array:
        is_correct = (action == 1) == (cue > 0)
        return jnp.where(time < delay, 0.0, jnp.where(is_correct, 1.0, -1.0))

    return _probe(
        lambda cue, time: jnp.where(time == 0, cue, 0.0), reward, steps=delay + 1
    )


@register("environment", "probe-continuous-action")
def continuous_action() -> Core:
    """Reward quadratic in the action, one step: are continuous actions improved?

    Observation 0, action a in [−1, 1], reward −(a − 0.5)², which is also q(0, a). The
    optimal policy takes a = 0.5: its v(0) = 0.
    """
    return _probe(
        lambda cue, time: 0.0 * cue,
        lambda cue, time, action: -jnp.square(action[0] - 0.5),
        action=gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
    )


def _probe(
    observe: Callable[[Array, Array], Array],
    reward: Callable[[Array, Array, Array], Array | float],
    *,
    steps: int | None = 1,
    action: gymnasium.Space | int = 2,
) -> Core:
    """Builds a probe from its observation `observe(cue, time)` and its reward.

    The cue is −1 or 1 with probability 1/2 each. The probe terminates after `steps`
    steps, or never for None.
    """

    def make_state(cue: Array, time: Array) -> ProbeState:
        return ProbeState(jnp.reshape(observe(cue, time), (1,)), cue, time)

    def begin(key: Key) -> ProbeState:
        cue = jax.random.rademacher(key, (), jnp.float32)
        return make_state(cue, jnp.zeros((), jnp.int32))

    def step(state: ProbeState, action: Array) -> tuple:
        after = make_state(state.cue, state.time + 1)
        terminated = jnp.asarray(False) if steps is None else after.time >= steps
        return after, reward(state.cue, state.time, action), terminated

    observation = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    return native_core(
        begin, step, lambda state: state.shown, observation, action, render=_draw
    )


def _draw(state: ProbeState) -> np.ndarray:
    """Draws the observation as a bar from −1 to 1, `[150, 300, 3]` uint8."""
    observation, time = float(state.shown[0]), int(state.time)
    canvas = drawing.Canvas(300, 150)
    canvas.text((30, 30), f"observation {observation + 0.0:g}", 18, anchor="lm")
    canvas.text((270, 30), f"step {time}", 18, drawing.GREY, anchor="rm")
    canvas.box((30, 70), 240, 24, drawing.MIST, radius=4)
    colour = drawing.BLUE if observation > 0 else drawing.RED
    if observation:
        canvas.box(
            (150 + min(0.0, observation) * 120, 70), abs(observation) * 120, 24, colour
        )
    canvas.line((150, 64), (150, 100), 3, drawing.INK)
    for value in (-1, 0, 1):
        canvas.text((150 + value * 120, 118), f"{value}", 14, drawing.GREY)
    return canvas.pixels()
