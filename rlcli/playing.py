"""Playing: episodes with a policy that learns nothing, for all seeds at once.

Exactly `share` episodes of each environment count, so that short ones are not
preferred: of whoever finishes first one would otherwise see more.

Every environment is played as one on the host, a step at a time: that compiles in a
moment, and a few hundred steps of many environments take a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.host import hosted
from rlcli.loop import over_seeds
from rlcli.progress import WATCH, stream
from rlcli.types import Array, ArrayTree, Environment, Policy, TimeStep

LONGEST = 10_000  # steps after which an episode without a time limit is cut


class Episodes(NamedTuple):
    """Returns and lengths, `[seeds, episodes]`; how many were cut at `LONGEST`."""

    returns: np.ndarray
    lengths: np.ndarray
    cut: int


class Moment(NamedTuple):
    """What is seen before each step: `render(state, index)` draws it."""

    state: ArrayTree
    action: np.ndarray  # [S, B, ...]
    reward: np.ndarray  # [S, B]: of the step before
    running: np.ndarray  # [S, B]: the return so far
    length: np.ndarray  # [S, B]: steps so far


class _Tally(NamedTuple):
    """Where every environment stands, `[B]`, and its finished episodes."""

    obs: Array
    first: Array
    policy: ArrayTree
    running: Array
    length: Array
    finished: Array  # int32: episodes that are over
    returns: Array  # [B, share]
    lengths: Array


class Player(NamedTuple):
    """Who plays what: `acting` has a leading axis, one entry for each of the seeds.

    `occasion` tells two times of watching the same seed apart; whatever it is, nothing
    is drawn from the run's own streams.
    """

    environment: Environment
    policy: Policy
    acting: ArrayTree
    seeds: np.ndarray
    share: int  # episodes of each environment
    occasion: int = 0
    explore: bool = False


def play(player: Player) -> Episodes:
    """`share` episodes in each environment of each seed."""
    *_, (_, tally) = _steps(player)
    shape = (len(player.seeds), -1)
    cut = np.sum(np.maximum(player.share - np.asarray(tally.finished), 0))
    return Episodes(
        np.asarray(tally.returns).reshape(shape),
        np.asarray(tally.lengths).reshape(shape),
        int(cut),
    )


def watch(player: Player) -> Iterator[tuple[Moment, np.ndarray]]:
    """What is seen before each step of the first environment, and its picture.

    The picture of an episode's end is not to be had: by then the environment has begun
    the next one.
    """
    for moment, _ in _steps(player):
        if moment is not None:
            yield moment, player.environment.render(moment.state, 0)


def _steps(player: Player) -> Iterator[tuple[Moment | None, _Tally]]:
    """Each moment, until every environment has had its share; then the last tally."""
    count = len(player.seeds)
    seeds = np.asarray(player.seeds, np.uint32)
    environment = hosted(player.environment, count)
    begin, decide, tell = (jax.jit(each) for each in _functions(player, count))
    numbers = [
        np.random.SeedSequence([int(seed), WATCH, player.occasion]).generate_state(1)[0]
        for seed in seeds
    ]
    state, obs = environment.reset(np.array(numbers, np.uint32))
    tally = begin(obs)
    reward = np.zeros((count, environment.num_envs), np.float32)
    for time in range(LONGEST * player.share):
        action, policy, noise = decide(player.acting, tally, seeds, np.int32(time))
        action = np.asarray(action)
        yield Moment(state, action, reward, tally.running, tally.length), tally
        state, timestep = environment.step(state, action, noise)
        tally, reward = tell(tally, policy, timestep), timestep.reward
        if np.all(np.asarray(tally.finished) >= player.share):
            break
    yield None, tally
    environment.close(state)


def _functions(player: Player, count: int) -> tuple[Callable, ...]:
    """`begin`, `decide` and `tell`, over all seeds."""
    environment, policy = player.environment, player.policy
    batch, act = environment.num_envs, policy.exploit
    if player.explore:
        act = policy.explore

    def begin(obs: Array) -> _Tally:
        table = jnp.zeros((batch, player.share), jnp.float32)
        counter = jnp.zeros(batch, jnp.int32)
        return _Tally(
            obs=obs,
            first=jnp.ones(batch, bool),
            policy=policy.initial(batch),
            running=jnp.zeros(batch, jnp.float32),
            length=counter,
            finished=counter,
            returns=table,
            lengths=table,
        )

    def decide(
        acting: ArrayTree, tally: _Tally, seed: Array, time: Array
    ) -> tuple[Array, ArrayTree, ArrayTree]:
        # Watching has a stream of its own, and draws nothing from the run's.
        occasion = jax.random.fold_in(stream(seed, WATCH), player.occasion)
        act_key, step_key = jax.random.split(jax.random.fold_in(occasion, time))
        noise = policy.draw(act_key, batch)
        decision, state = act(acting, tally.obs, tally.policy, tally.first, noise)
        return decision.action, state, environment.draw(step_key)

    def tell(tally: _Tally, state: ArrayTree, timestep: TimeStep) -> _Tally:
        running, length = tally.running + timestep.reward, tally.length + 1
        # Sums so far are written too: the last to be written is an episode's whole.
        row = jnp.arange(batch), tally.finished
        return _Tally(
            obs=timestep.obs,
            first=timestep.last,
            policy=state,
            running=jnp.where(timestep.last, 0, running),
            length=jnp.where(timestep.last, 0, length),
            finished=tally.finished + timestep.last,
            returns=tally.returns.at[row].set(running, mode="drop"),
            lengths=tally.lengths.at[row].set(length, mode="drop"),
        )

    return (
        over_seeds(begin, count, (0,), 0),
        over_seeds(decide, count, (0, 0, 0, None), (0, 0, 0)),
        over_seeds(tell, count, (0, 0, 0), 0),
    )
