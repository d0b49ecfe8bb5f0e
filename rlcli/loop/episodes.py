"""Playing: episodes with a policy that learns nothing, for all seeds at once.

Exactly `share` episodes of each environment count, so that short ones are not
preferred: of whoever finishes first one would otherwise see more.

Every environment is played as one on the host, a step at a time: that compiles in a
moment, and a few hundred steps of many environments take a fraction of a second.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.adapters.host import hosted
from rlcli.loop import over_seeds, timestep_shapes
from rlcli.loop.progress import WATCH, stream
from rlcli.types import Array, ArrayTree, Environment, Policy, TimeStep
from rlcli.xla.temporaries import temporary_bytes

_AT_ONCE = 128  # environments that play an evaluation …
_ADAPTED = 10  # … and where each of them is an object of another library
LONGEST = 10_000  # every so many steps all episodes are cut: some would never end


class Episodes(NamedTuple):
    """Returns and lengths, `[seeds, episodes]`; how many were cut at `LONGEST`."""

    returns: np.ndarray
    lengths: np.ndarray
    cut: int


class Moment(NamedTuple):
    """What is seen before each step, and once more where an episode has ended."""

    state: ArrayTree
    action: np.ndarray | None  # [S, B, ...]; None where an episode has ended
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
    cut: Array  # int32: how many of these were cut at LONGEST


def parallel_environments(episodes: int, adapter: bool) -> int:
    """How many environments play so many episodes; `adapter`: of another library."""
    return min(episodes, _ADAPTED if adapter else _AT_ONCE)


class Player:
    """Plays with one policy in one environment, for as many seeds as there are.

    Compiled once, however often it plays.
    """

    def __init__(
        self,
        environment: Environment,
        policy: Policy,
        seeds: Sequence[int],
        share: int,
        *,
        explore: bool = False,
    ) -> None:
        """`share` is how many episodes each environment plays."""
        self.environment = environment
        self.share = share
        self._seeds = np.array(seeds, np.uint32)
        self._hosted = hosted(environment, len(seeds))
        functions = _functions(environment, policy, share, len(seeds), explore)
        self._begin, self._decide, self._tell = (jax.jit(each) for each in functions)

    def play(self, acting: ArrayTree, occasion: int = 0) -> Episodes:
        """All episodes. `acting` has a leading axis, one entry for each of the seeds.

        `occasion` tells two times of watching the same seed apart; whatever it is,
        nothing is drawn from the run's own streams.
        """
        *_, (_, tally) = self._steps(acting, occasion)
        shape = (len(self._seeds), -1)
        return Episodes(
            np.asarray(tally.returns).reshape(shape),
            np.asarray(tally.lengths).reshape(shape),
            int(np.sum(tally.cut)),
        )

    @property
    def seeds(self) -> int:
        """How many seeds it plays."""
        return len(self._seeds)

    def shapes(self, acting: ArrayTree) -> tuple[ArrayTree, int]:
        """The arrays of one step as shapes, and the bytes of temporaries at least.

        Allocates nothing. `acting` may be shapes.
        """
        environment = self.environment
        seeds = jax.ShapeDtypeStruct(self._seeds.shape, self._seeds.dtype)
        state: ArrayTree = ()
        if environment.pure:
            keys = jax.eval_shape(jax.vmap(jax.random.key), seeds)
            state, obs = jax.eval_shape(jax.vmap(environment.reset), keys)
        else:
            obs, _ = timestep_shapes(self.seeds, environment)
        tally = jax.eval_shape(self._begin, obs)
        now = jax.ShapeDtypeStruct((2,), np.int32)
        decide = self._decide.trace(acting, tally, seeds, now)
        programs, decided = [decide], decide.out_info
        if environment.pure:
            action, _, noise = decided
            step = jax.jit(jax.vmap(environment.step, (0, 0, 0, None)))
            programs.append(step.trace(state, action, noise, False))
        temporaries = max(temporary_bytes(each.jaxpr) for each in programs)
        # A step writes a new state and a new tally beside the old ones.
        return (state, state, tally, tally, decided), temporaries

    def watch(
        self, acting: ArrayTree, occasion: int = 0
    ) -> Iterator[tuple[Moment, np.ndarray]]:
        """What is seen before each step of the first environment, and its picture.

        After the last step of an episode comes the picture of its final state, without
        an action, if the environment stores it: if it was built with `rendering`.
        """
        for moment, _ in self._steps(acting, occasion):
            if moment is None:
                continue
            ended = moment.action is None
            render = self._hosted.render_final if ended else self._hosted.render
            if (picture := render(moment.state, 0)) is not None:
                yield moment, picture

    def _steps(
        self, acting: ArrayTree, occasion: int
    ) -> Iterator[tuple[Moment | None, _Tally]]:
        """Each moment, until all have had their share; then the last tally.

        Moments without an action are those of ends of the first environment's episodes.
        """
        environment, seeds = self._hosted, self._seeds
        numbers = [
            np.random.SeedSequence([int(seed), WATCH, occasion]).generate_state(1)[0]
            for seed in seeds
        ]
        state, obs = environment.reset(np.array(numbers, np.uint32))
        tally = self._begin(obs)
        reward = np.zeros((len(seeds), environment.num_envs), np.float32)
        try:
            for time in itertools.count():
                now = np.array([occasion, time], np.int32)
                action, policy, noise = self._decide(acting, tally, seeds, now)
                action = jax.tree.map(np.asarray, action)
                yield Moment(state, action, reward, tally.running, tally.length), tally
                cut = (time + 1) % LONGEST == 0
                before = tally
                state, timestep = environment.step(state, action, noise, cut)
                tally, reward = (
                    self._tell(tally, policy, timestep, cut),
                    timestep.reward,
                )
                if timestep.last[0, 0]:
                    total = np.asarray(before.running) + reward
                    length = np.asarray(before.length) + 1
                    yield Moment(state, None, reward, total, length), tally
                if np.all(np.asarray(tally.finished) >= self.share):
                    break
            yield None, tally
        finally:
            environment.close(state)


def _functions(
    environment: Environment, policy: Policy, share: int, seeds: int, explore: bool
) -> tuple[Callable, ...]:
    """`begin`, `decide` and `tell`, over all seeds."""
    batch = environment.num_envs
    act = policy.explore if explore else policy.exploit

    def begin(obs: Array) -> _Tally:
        table = jnp.zeros((batch, share), jnp.float32)
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
            cut=jnp.int32(0),
        )

    def decide(
        acting: ArrayTree, tally: _Tally, seed: Array, now: Array
    ) -> tuple[Array, ArrayTree, ArrayTree]:
        # Watching has a stream of its own, and draws nothing from the run's.
        occasion = jax.random.fold_in(stream(seed, WATCH), now[0])
        act_key, step_key = jax.random.split(jax.random.fold_in(occasion, now[1]))
        noise = policy.draw(act_key, batch)
        decision, state = act(acting, tally.obs, tally.policy, tally.first, noise)
        return decision.action, state, environment.draw(step_key)

    def tell(tally: _Tally, state: ArrayTree, timestep: TimeStep, cut: Array) -> _Tally:
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
            cut=tally.cut + jnp.sum(cut & (tally.finished < share)),
        )

    return (
        over_seeds(begin, seeds, (0,), 0),
        over_seeds(decide, seeds, (0, 0, 0, None), (0, 0, 0)),
        over_seeds(tell, seeds, (0, 0, 0, None), 0),
    )
