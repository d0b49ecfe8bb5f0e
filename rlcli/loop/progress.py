"""Progress: everything a run has come to, and how it begins.

Nothing is random but by a key made of (seed, stream, step): no key is part of Progress.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.loop.faults import Faults, begin_faults
from rlcli.types import (
    Agent,
    Array,
    ArrayTree,
    Clock,
    Environment,
    Key,
    TimeStep,
    Transition,
)

# The streams of random numbers of a seed. WATCH is for those who look on: evaluation.
INIT, RESET, STEP, POLICY, LEARN, EVALUATION = range(6)

_AVERAGE_EPISODES = 10  # episodes that `average_return` looks back upon


class Setup(NamedTuple):
    """What `build` makes of a recipe."""

    parts: Callable[[Clock], tuple[Environment, Agent]]  # as they are at that time
    unroll: int  # steps of each environment in an iteration
    seeds: tuple[int, ...]
    devices: int = 1
    reset: bool = False  # whether every unroll begins with a reset

    @property
    def steps(self) -> int:
        """Environment steps of one seed in an iteration."""
        return self.unroll * self.parts(Clock.zero())[0].num_envs


class Pending(NamedTuple):
    """A decision that waits for the environment's answer; `[B, ...]`."""

    obs: Array
    action: Array
    first: Array
    extras: ArrayTree


class EpisodeStatistics(NamedTuple):
    """Of episodes."""

    running_return: Array  # float32 [B]
    running_length: Array  # int32 [B]
    episodes: Array  # int32: finished so far
    last_return: Array  # of the last that finished (the mean of those that did at once)
    last_length: Array
    average_return: Array  # running average over some ten
    running_info: Mapping[str, Array] = {}  # float32 [B]: what the environment logs
    last_info: Mapping[str, Array] = {}  # float32 each, as the two below
    total_info: Mapping[str, Array] = {}  # over all that finished
    max_info: Mapping[str, Array] = {}  # of any one of them


class Progress(NamedTuple):
    """Everything a run has come to. The first two have no axis for the seeds."""

    iteration: Array  # int32: iterations finished
    position: Array  # int32: steps of the unroll that are filled
    seed: Array  # uint32
    environment: ArrayTree
    pending: Pending
    policy: ArrayTree
    unroll: Transition  # [T, B, ...]; one of a single step is kept nowhere, and stays 0
    agent: ArrayTree
    statistics: EpisodeStatistics
    faults: Faults


AXES = Progress._make([None, None, 0, 0, 0, 0, 0, 0, 0, 0])


def stream_key(seed: Array | int, index: int) -> Key:
    """The key of one stream of a seed."""
    return jax.random.fold_in(jax.random.key(seed), index)


def clock_at(progress: Progress, steps: Array, compute_metrics: Any) -> Clock:
    """The time `steps` steps of each environment into the run."""
    environments = progress.pending.first.shape[0]
    return Clock(
        iteration=progress.iteration,
        steps=steps.astype(jnp.float32) * environments,
        episodes=progress.statistics.episodes.astype(jnp.float32),
        updates=jnp.int32(0),  # an agent counts its own
        compute_metrics=compute_metrics,
    )


def current_step(setup: Setup, progress: Progress) -> Array:
    """Steps of each environment so far."""
    return progress.iteration * setup.unroll + progress.position


def draw_step_noise(setup: Setup, seed: Array, time: Array) -> tuple[ArrayTree, ...]:
    """The noise of one step, which depends on nothing but seed and time."""
    environment, agent = setup.parts(Clock.zero())
    step, decide, learn = (
        jax.random.fold_in(stream_key(seed, index), time)
        for index in (STEP, POLICY, LEARN)
    )
    # Of a longer unroll only the last step learns: there it is drawn when needed.
    learn_noise = agent.draw(learn) if setup.unroll == 1 else learn
    deciding = agent.policy.draw(decide, environment.num_envs)
    return environment.draw(step), deciding, learn_noise


def select_action(
    agent: Agent,
    state: ArrayTree,
    obs: Array,
    policy: ArrayTree,
    first: Array,
    noise: ArrayTree,
) -> tuple[Pending, ArrayTree]:
    """The next decision, with the extras that unrolls keep."""
    decision, after = agent.policy.explore(
        agent.acting(state), obs, policy, first, noise
    )
    extras_offered = {"carry": policy[0], **decision.extras}
    extras = {name: extras_offered[name] for name in agent.requires}
    return Pending(obs, decision.action, first, extras), after


def info_names(environment: Environment, state: ArrayTree) -> list[str]:
    """The names of what a pure environment logs: its `info`."""

    def step_info(key: Key) -> Mapping[str, Array]:
        noise = environment.draw(key)
        return environment.step(state, _zero_actions(environment), noise)[1].info

    return sorted(jax.eval_shape(step_info, stream_key(0, STEP)))


def initial_progress(
    setup: Setup,
    seed: Array,
    state: ArrayTree,
    obs: Array,
    info_keys: Sequence[str] = (),
) -> Progress:
    """Progress at the very start of one seed, with the first decision taken.

    `info_keys` names what of an environment's `info` is summed over episodes.
    """
    environment, agent = setup.parts(Clock.zero())
    batch = environment.num_envs
    first = jnp.ones(batch, bool)
    # The decision at step t + 1 is drawn with t's key: the first comes before them all.
    decide_key = jax.random.fold_in(stream_key(seed, POLICY), np.uint32(2**32 - 1))
    noise = agent.policy.draw(decide_key, batch)
    learner_of = functools.partial(agent.init, stream_key(seed, INIT))

    def decide(agent_state: ArrayTree) -> tuple[Pending, ArrayTree]:
        state = agent.policy.initial(batch)
        return select_action(agent, agent_state, obs, state, first, noise)

    # An agent begins from the shape of an unroll, and that depends on its decisions:
    # so ask first, with an unroll that has no extras, what a decision looks like.
    like = Pending(obs, _zero_actions(environment), first, {})
    shapes, _ = jax.eval_shape(lambda: decide(learner_of(_empty_unroll(setup, like))))
    unroll = _empty_unroll(setup, shapes)
    learner = learner_of(unroll)
    pending, policy = decide(learner)
    nothing = jnp.float32(0)
    return Progress(
        iteration=jnp.int32(0),
        position=jnp.int32(0),
        seed=seed,
        environment=state,
        pending=pending,
        policy=policy,
        unroll=unroll,
        agent=learner,
        statistics=EpisodeStatistics(
            running_return=jnp.zeros(batch, jnp.float32),
            running_length=jnp.zeros(batch, jnp.int32),
            episodes=jnp.int32(0),
            last_return=nothing,
            last_length=nothing,
            average_return=nothing,
            running_info={name: jnp.zeros(batch, jnp.float32) for name in info_keys},
            last_info=dict.fromkeys(info_keys, nothing),
            total_info=dict.fromkeys(info_keys, nothing),
            max_info=dict.fromkeys(info_keys, jnp.float32(-jnp.inf)),
        ),
        faults=begin_faults(environment, obs),
    )


def update_statistics(
    statistics: EpisodeStatistics, timestep: TimeStep
) -> EpisodeStatistics:
    """The statistics after one more step of every environment."""
    running_return = statistics.running_return + timestep.reward
    running_length = statistics.running_length + 1
    running_info = {
        name: value + timestep.info[name].astype(jnp.float32)
        for name, value in statistics.running_info.items()
    }
    last = timestep.last
    num_finished = jnp.sum(last, dtype=jnp.int32)
    has_finished, share = (
        num_finished > 0,
        jnp.maximum(num_finished, 1).astype(jnp.float32),
    )

    def mean(totals: Array) -> Array:
        return jnp.sum(jnp.where(last, totals, 0)) / share

    mean_return = mean(running_return)
    episodes = statistics.episodes + num_finished
    # As coax's TrainMonitor: the mean of the first ten, then exponentially forgetting.
    horizon = jnp.clip(episodes, 1, _AVERAGE_EPISODES).astype(jnp.float32)
    rate = jnp.minimum(num_finished / horizon, 1)
    average = statistics.average_return
    return EpisodeStatistics(
        running_return=jnp.where(last, 0, running_return),
        running_length=jnp.where(last, 0, running_length),
        episodes=episodes,
        last_return=jnp.where(has_finished, mean_return, statistics.last_return),
        last_length=jnp.where(
            has_finished, mean(running_length), statistics.last_length
        ),
        average_return=average + rate * (mean_return - average),
        running_info={
            k: jnp.where(last, 0, value) for k, value in running_info.items()
        },
        last_info={
            name: jnp.where(has_finished, mean(value), statistics.last_info[name])
            for name, value in running_info.items()
        },
        total_info={
            name: statistics.total_info[name] + jnp.sum(jnp.where(last, value, 0))
            for name, value in running_info.items()
        },
        max_info={
            name: jnp.max(value, initial=statistics.max_info[name], where=last)
            for name, value in running_info.items()
        },
    )


def _zero_actions(environment: Environment) -> ArrayTree:
    """An action for each environment, of the right shape."""
    return jax.tree.map(
        lambda leaf: jnp.zeros((environment.num_envs, *leaf.shape), leaf.dtype),
        spaces.zeros(environment.action),
    )


def _empty_unroll(setup: Setup, pending: Pending) -> Transition:
    """An unroll of zeros, of the shape that decisions fill."""

    def zeros(leaf: Array) -> Array:
        return jnp.zeros((setup.unroll, *leaf.shape), leaf.dtype)

    flag = zeros(pending.first)
    number = flag.astype(jnp.float32)
    return Transition(
        obs=jax.tree.map(zeros, pending.obs),
        action=jax.tree.map(zeros, pending.action),
        reward=number,
        discount=number,
        next_obs=jax.tree.map(zeros, pending.obs),
        first=flag,
        last=flag,
        extras=jax.tree.map(zeros, pending.extras),
    )
