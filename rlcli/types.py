"""Types: the records that pass between parts. Imports nothing of ours.

A *part* is a NamedTuple of pure functions made by a factory; its state is a NamedTuple
of arrays. Arrays are time-major: `[T, B, ...]` is T steps of B environments.

Where drawing random numbers is hot, a part splits in two: `draw(key) -> noise`, and a
function that takes the noise. The loop draws whole blocks of noise at once, which gives
the same bits as step by step, several times cheaper. Elsewhere `draw` is
`key_as_noise`: the noise is the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import gymnasium
import numpy as np
from annotated_types import Ge, Gt, Le

Array = Any  # a JAX array or, on the host, NumPy's: checkers cannot follow the two
ArrayTree = Any  # a tree of arrays; () where there is nothing to carry
Key = Any  # a typed JAX key, consumed once
Params = Any  # a mapping by function or group: {"q": …} or {"shared": …, …}

# What a recipe may set, with its range. A plain or annotated `float` may be a number or
# a schedule; a `Structural` one shapes a space or a state, and is a number only.
Probability = Annotated[float, Ge(0.0), Le(1.0)]
Positive = Annotated[float, Gt(0.0)]
NonNegative = Annotated[float, Ge(0.0)]
Count = Annotated[int, Ge(1)]
Structural = Annotated[float, "structural"]


def key_as_noise(key: Key) -> Key:
    """The `draw` of a part that has nothing to draw ahead: its noise is the key."""
    return key


class TimeStep(NamedTuple):
    """An environment's answer to an action; every field `[B, ...]`."""

    obs: Array  # to decide upon next: already the new episode's where `last`
    next_obs: Array  # what the action led to
    reward: Array  # float32
    discount: Array  # float32: 0 where the episode terminated, else 1
    last: Array  # bool: any end of the episode, terminated or truncated
    info: Mapping[str, Array]  # `[B]` each: logged, summed per episode


class Environment(NamedTuple):
    """B environments that start their next episode by themselves.

    A *core* is the same record for one environment (`num_envs` 0): no batch axis, no
    time limit, no auto-reset (`obs` is `next_obs`), and `render(state)`.
    Where `pure` is false JAX cannot trace it: it runs on the host, for all seeds in one
    vector, so every array has a leading axis for the seeds (see
    `environments.adapters.host`).
    """

    reset: Callable[[Key], tuple[ArrayTree, Array]]  # key -> state, obs
    step: Callable[..., tuple[ArrayTree, TimeStep]]  # (state, action, noise, cut=False)
    # cut: a bool, whether every episode is truncated by this step
    observation: gymnasium.Space  # of one environment
    action: gymnasium.Space
    render: Callable[..., Any]  # (state, index) -> [H, W, 3] uint8, on the host
    num_envs: int = 0
    pure: bool = True
    draw: Callable[[Key], ArrayTree] = key_as_noise
    # Host environments only: state -> arrays for a checkpoint; and back, with a
    # sentence about what could not be restored ("" where it is exact); and the end.
    save: Callable[[ArrayTree], ArrayTree] = lambda state: state
    restore: Callable[[ArrayTree], tuple[ArrayTree, str]] = lambda saved: (saved, "")
    close: Callable[[ArrayTree], None] = lambda state: None
    # (state, index) -> the picture of the state in which the last step ended an
    # episode, before the reset; None where it is not stored. Environments store it only
    # if they are built with `rendering`: training pays nothing for it.
    render_final: Callable[..., Any] = lambda state, index=0: None


class RenderState(NamedTuple):
    """A core's state with `rendering`: what only pictures show stands beside it.

    A core's factory has a parameter `rendering`, by position, if it has such details.
    """

    state: ArrayTree  # as without `rendering`
    details: ArrayTree


class Decision(NamedTuple):
    """What a policy chose, and what it has to say about it."""

    action: Array
    extras: Mapping[str, ArrayTree]  # `log_prob` of the action, at least


class Transition(NamedTuple):
    """THE record, from environment to loss: `[T, B, ...]`, time-major.

    After a tracer, `reward` is a sum of rewards and `discount` what multiplies the
    value of `next_obs`: the target is `reward + discount * v(next_obs)` always.
    """

    obs: Array
    action: Array
    reward: Array
    discount: Array
    next_obs: Array
    first: Array  # bool: `obs` begins an episode
    last: Array  # bool: `next_obs` ends it
    # What tracer or updater asked for. What is named `next_…` belongs to `next_obs`: a
    # tracer that looks further along moves it as well.
    extras: Mapping[str, ArrayTree]


class Network(NamedTuple):
    """A function of the observation (and action) with parameters.

    `init(key) -> params`, a mapping by group, so that functions may share some.
    `apply(params, key, inputs, carry, first) -> outputs, carries`; inputs, first and
    outputs are `[T, B, ...]`; it begins from `carry` `[B, ...]`, forgets where `first`,
    and `carries` `[T, B, ...]` is what it carries after each step. A feed-forward
    network carries `()`. `initial(batch) -> carry`.
    """

    init: Callable[[Key], Params]
    apply: Callable[..., tuple[ArrayTree, ArrayTree]]
    initial: Callable[[int], ArrayTree]


class Policy(NamedTuple):
    """How to act. `state` is (memory of the network, noise process).

    `explore` acts for training and `exploit` for evaluation:
    `(acting, obs[B], state, first[B], noise) -> Decision, state`.
    """

    initial: Callable[[int], ArrayTree]  # batch -> state
    draw: Callable[[Key, int], ArrayTree]  # (key, batch) -> noise
    explore: Callable[..., tuple[Decision, ArrayTree]]
    exploit: Callable[..., tuple[Decision, ArrayTree]]
    # (outputs of the network [..., ·], action) -> log-probability while exploring [...]
    log_prob: Callable[[ArrayTree, Array], Array]


class Estimates(NamedTuple):
    """What an updater thinks of steps `[T, B]`, for tracers that bootstrap."""

    v_tm1: Array  # value of `obs`
    v_t: Array  # value of `next_obs`
    log_prob: Array  # of the action, under the policy as it is now
    q_tm1: Array  # value of the action taken
    carry: ArrayTree = ()  # `[T, B, ...]`: the memory that `next_obs` is seen with


class Tracer(NamedTuple):
    """How far along time a transition looks.

    One that sees further than its updater's loss may leave an `advantage` among the
    extras: how much better the action was than `obs` is worth.
    """

    window: int | None  # steps one row may span; None: a whole episode, so that it
    # goes with a replay of episodes alone
    trace: Callable[[Transition, Estimates], Transition]  # only complete rows
    requires: tuple[str, ...] = ()  # the extras it reads


class Replay(NamedTuple):
    """A memory of raw steps.

    `count` is how many unrolls were added: it comes from the loop's own counter, and
    has no batch axis under `vmap` over seeds, so that positions in the ring have none.
    """

    init: Callable[[Transition], ArrayTree]  # one unroll [T, B, ...], as an example
    draw: Callable[[Key], ArrayTree]  # key -> noise for one sample
    add: Callable[[ArrayTree, Transition, Array], ArrayTree]  # (state, steps, count)
    sample: Callable[..., tuple[Transition, Array, ArrayTree]]
    # (state, count, noise) -> steps[T, N], weight[T, N], index; T ≥ the window it was
    # asked for. `extras["carry"]` may have one row instead, that of the first step.
    reweigh: Callable[..., ArrayTree]  # (state, index, priority) -> state, after each
    # sample, with the priority of the updater's report
    capacity: int = 0  # steps of one seed, over all its environments
    window: int = 0  # steps in a row without which it has nothing to hand out
    episodes: bool = False  # whether it hands out whole ones, and at times none: where
    # all of a sample weighs 0 there is no update
    priority: str = ""  # what the updater has to report, where it is not up to it


class Clock(NamedTuple):
    """What time it is in a run. Scalars; only `episodes` differs between seeds."""

    iteration: Array  # int32: iterations finished
    steps: Array  # float32: environment steps of one seed, over all its environments
    episodes: Array  # float32: episodes finished
    updates: Array  # int32: updates made
    compute_metrics: Array  # bool: whether anybody will read this iteration's metrics

    @staticmethod
    def zero() -> Clock:
        """The time at which a run begins."""
        zero = np.int32(0)
        return Clock(zero, np.float32(0), np.float32(0), zero, np.bool_(False))


class Report(NamedTuple):
    """What an update has to say."""

    priority: Array  # `[B]`: how much there was to learn from each row; or `[T, B]`
    metrics: Mapping[str, Array]  # scalars


class Updater(NamedTuple):
    """A loss, and a way to act.

    `update(state, batch, weight, clock, key) -> state, Report`, with batch and weight
    `[T, B]` as the tracer left them. `estimate(state, steps) -> Estimates`.
    """

    init: Callable[[Key], ArrayTree]
    acting: Callable[[ArrayTree], ArrayTree]  # all that acting needs of the state
    policy: Policy
    update: Callable[..., tuple[ArrayTree, Report]]
    estimate: Callable[[ArrayTree, Transition], Estimates]
    failed_at: Callable[[ArrayTree], Array]  # state -> the update that failed, or −1
    requires: tuple[str, ...] = ()  # the extras it reads
    rows: int = 1  # consecutive rows that it needs of a replay, at least


class Agent(NamedTuple):
    """Policy, tracer, updater and replay, put together.

    `learn(state, steps, clock, noise) -> state, metrics` is called once an iteration,
    with the unroll just made, `[T, B, ...]`.
    """

    init: Callable[[Key, Transition], ArrayTree]  # (key, one unroll as an example)
    acting: Callable[[ArrayTree], ArrayTree]
    policy: Policy
    draw: Callable[[Key], ArrayTree]
    learn: Callable[..., tuple[ArrayTree, Mapping[str, Array]]]
    updates: Callable[[Any], Any]  # iterations -> updates made in them
    failed_at: Callable[[ArrayTree], Array]  # state -> the update that failed, or −1
    requires: tuple[str, ...] = ()  # the extras that unrolls keep
