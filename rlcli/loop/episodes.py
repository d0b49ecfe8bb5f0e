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

from rlcli.environments.adapters.host import to_host_environment
from rlcli.loop import timestep_shapes, vmap_seeds
from rlcli.loop.progress import EVALUATION, stream_key
from rlcli.types import Array, ArrayTree, Environment, Policy, TimeStep
from rlcli.xla.temporaries import temporary_bytes

_MAX_ENVIRONMENTS = 128  # environments that play an evaluation …
_MAX_HOST_ENVIRONMENTS = 10  # … and where each of them is an object of another library
MAX_EPISODE_STEPS = (
    10_000  # every so many steps all episodes are cut: some would never end
)


class EvaluationResult(NamedTuple):
    """Returns and lengths, `[seeds, episodes]`; how many were cut at
    `MAX_EPISODE_STEPS`.
    """

    returns: np.ndarray
    lengths: np.ndarray
    num_cut: int


class EvaluationStep(NamedTuple):
    """What is seen before each step, and once more where an episode has ended."""

    state: ArrayTree
    action: np.ndarray | None  # [S, B, ...]; None where an episode has ended
    reward: np.ndarray  # [S, B]: of the step before
    running_return: np.ndarray  # [S, B]: the return so far
    length: np.ndarray  # [S, B]: steps so far


class _EvaluationState(NamedTuple):
    """Where every environment stands, `[B]`, and its finished episodes."""

    obs: Array
    first: Array
    policy: ArrayTree
    running_return: Array
    length: Array
    num_finished: Array  # int32: episodes that are over
    returns: Array  # [B, share]
    lengths: Array
    num_cut: Array  # int32: how many of these were cut at LONGEST


def parallel_environments(episodes: int, adapter: bool) -> int:
    """How many environments play so many episodes; `adapter`: of another library."""
    return min(episodes, _MAX_HOST_ENVIRONMENTS if adapter else _MAX_ENVIRONMENTS)


class Evaluator:
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
        """`episodes_per_env` is how many episodes each environment plays."""
        self.environment = environment
        self.episodes_per_env = share
        self._seeds = np.array(seeds, np.uint32)
        self._host_env = to_host_environment(environment, len(seeds))
        functions = _evaluation_functions(
            environment, policy, share, len(seeds), explore
        )
        self._begin, self._select, self._record = (
            jax.jit(function) for function in functions
        )

    def evaluate(
        self, acting: ArrayTree, evaluation_index: int = 0
    ) -> EvaluationResult:
        """All episodes. `acting` has a leading axis, one entry for each of the seeds.

        `evaluation_index` tells two times of watching the same seed apart; whatever it
        is, nothing is drawn from the run's own streams.
        """
        *_, (_, tally) = self._steps(acting, evaluation_index)
        shape = (len(self._seeds), -1)
        return EvaluationResult(
            np.asarray(tally.returns).reshape(shape),
            np.asarray(tally.lengths).reshape(shape),
            int(np.sum(tally.num_cut)),
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
        decide = self._select.trace(acting, tally, seeds, now)
        programs, decided = [decide], decide.out_info
        if environment.pure:
            action, _, noise = decided
            step = jax.jit(jax.vmap(environment.step, (0, 0, 0, None)))
            programs.append(step.trace(state, action, noise, False))
        temporaries = max(temporary_bytes(each.jaxpr) for each in programs)
        # A step writes a new state and a new tally beside the old ones.
        return (state, state, tally, tally, decided), temporaries

    def frames(
        self, acting: ArrayTree, evaluation_index: int = 0
    ) -> Iterator[tuple[EvaluationStep, np.ndarray]]:
        """What is seen before each step of the first environment, and its picture.

        After the last step of an episode comes the picture of its final state, without
        an action, if the environment stores it: if it was built with `rendering`.
        """
        for moment, _ in self._steps(acting, evaluation_index):
            if moment is None:
                continue
            ended = moment.action is None
            render = self._host_env.render_final if ended else self._host_env.render
            if (picture := render(moment.state, 0)) is not None:
                yield moment, picture

    def _steps(
        self, acting: ArrayTree, evaluation_index: int
    ) -> Iterator[tuple[EvaluationStep | None, _EvaluationState]]:
        """Each moment, until all have had their share; then the last tally.

        Moments without an action are those of ends of the first environment's episodes.
        """
        environment, seeds = self._host_env, self._seeds
        numbers = [
            np.random.SeedSequence(
                [int(seed), EVALUATION, evaluation_index]
            ).generate_state(1)[0]
            for seed in seeds
        ]
        state, obs = environment.reset(np.array(numbers, np.uint32))
        tally = self._begin(obs)
        reward = np.zeros((len(seeds), environment.num_envs), np.float32)
        try:
            for time in itertools.count():
                stream_index = np.array([evaluation_index, time], np.int32)
                action, policy, noise = self._select(acting, tally, seeds, stream_index)
                action = jax.tree.map(np.asarray, action)
                yield (
                    EvaluationStep(
                        state, action, reward, tally.running_return, tally.length
                    ),
                    tally,
                )
                cut = (time + 1) % MAX_EPISODE_STEPS == 0
                before = tally
                state, timestep = environment.step(state, action, noise, cut)
                tally, reward = (
                    self._record(tally, policy, timestep, cut),
                    timestep.reward,
                )
                if timestep.last[0, 0]:
                    total = np.asarray(before.running_return) + reward
                    length = np.asarray(before.length) + 1
                    yield EvaluationStep(state, None, reward, total, length), tally
                if np.all(np.asarray(tally.num_finished) >= self.episodes_per_env):
                    break
            yield None, tally
        finally:
            environment.close(state)


def _evaluation_functions(
    environment: Environment, policy: Policy, share: int, seeds: int, explore: bool
) -> tuple[Callable, ...]:
    """`begin`, `decide` and `tell`, over all seeds."""
    batch = environment.num_envs
    act = policy.explore if explore else policy.exploit

    def begin(obs: Array) -> _EvaluationState:
        table = jnp.zeros((batch, share), jnp.float32)
        counter = jnp.zeros(batch, jnp.int32)
        return _EvaluationState(
            obs=obs,
            first=jnp.ones(batch, bool),
            policy=policy.initial(batch),
            running_return=jnp.zeros(batch, jnp.float32),
            length=counter,
            num_finished=counter,
            returns=table,
            lengths=table,
            num_cut=jnp.int32(0),
        )

    def decide(
        acting: ArrayTree, tally: _EvaluationState, seed: Array, stream_index: Array
    ) -> tuple[Array, ArrayTree, ArrayTree]:
        # Watching has a stream of its own, and draws nothing from the run's.
        evaluation_key = jax.random.fold_in(
            stream_key(seed, EVALUATION), stream_index[0]
        )
        act_key, step_key = jax.random.split(
            jax.random.fold_in(evaluation_key, stream_index[1])
        )
        noise = policy.draw(act_key, batch)
        decision, state = act(acting, tally.obs, tally.policy, tally.first, noise)
        return decision.action, state, environment.draw(step_key)

    def tell(
        tally: _EvaluationState, state: ArrayTree, timestep: TimeStep, cut: Array
    ) -> _EvaluationState:
        running, length = tally.running_return + timestep.reward, tally.length + 1
        # Sums so far are written too: the last to be written is an episode's whole.
        row = jnp.arange(batch), tally.num_finished
        return _EvaluationState(
            obs=timestep.obs,
            first=timestep.last,
            policy=state,
            running_return=jnp.where(timestep.last, 0, running),
            length=jnp.where(timestep.last, 0, length),
            num_finished=tally.num_finished + timestep.last,
            returns=tally.returns.at[row].set(running, mode="drop"),
            lengths=tally.lengths.at[row].set(length, mode="drop"),
            num_cut=tally.num_cut + jnp.sum(cut & (tally.num_finished < share)),
        )

    return (
        vmap_seeds(begin, seeds, (0,), 0),
        vmap_seeds(decide, seeds, (0, 0, 0, None), (0, 0, 0)),
        vmap_seeds(tell, seeds, (0, 0, 0, None), 0),
    )
