"""Episodes: evaluation of a policy without learning, for all seeds simultaneously.

The first `episodes_per_env` episodes of each environment count. Counting the first
episodes to finish over all environments would favour short ones.

Every environment, pure or not, is stepped from the host. This compiles quickly, and a
few hundred steps of many environments take a fraction of a second.
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

_MAX_ENVIRONMENTS = 128  # parallel environments of an evaluation …
_MAX_HOST_ENVIRONMENTS = 10  # … and if they belong to another library
# All episodes are truncated every this many steps: some would never end.
MAX_EPISODE_STEPS = 10_000


class EvaluationResult(NamedTuple):
    """Returns and lengths, `[seeds, episodes]`."""

    returns: np.ndarray
    lengths: np.ndarray
    num_cut: int  # episodes truncated at `MAX_EPISODE_STEPS`


class EvaluationStep(NamedTuple):
    """The state of an evaluation before a step, or after the end of an episode."""

    state: ArrayTree
    action: np.ndarray | None  # [S, B, ...]; None where an episode has ended
    reward: np.ndarray  # [S, B]: of the previous step
    running_return: np.ndarray  # [S, B]: the return so far
    length: np.ndarray  # [S, B]: steps so far


class _EvaluationState(NamedTuple):
    """The current episodes `[B]`, and the results of finished ones."""

    obs: Array
    first: Array
    policy: ArrayTree
    running_return: Array
    length: Array
    num_finished: Array  # int32: finished episodes
    returns: Array  # [B, episodes_per_env]
    lengths: Array
    num_cut: Array  # int32: episodes truncated at `MAX_EPISODE_STEPS`


def parallel_environments(episodes: int, adapter: bool) -> int:
    """The number of parallel environments of an evaluation.

    `adapter`: whether the environment belongs to another library.
    """
    return min(episodes, _MAX_HOST_ENVIRONMENTS if adapter else _MAX_ENVIRONMENTS)


class Evaluator:
    """Evaluates one policy in one environment, for all seeds.

    Compiled once for any number of evaluations.
    """

    def __init__(
        self,
        environment: Environment,
        policy: Policy,
        seeds: Sequence[int],
        episodes_per_env: int,
        *,
        explore: bool = False,
    ) -> None:
        """`episodes_per_env` is the number of episodes that each environment counts."""
        self.environment = environment
        self.episodes_per_env = episodes_per_env
        self._seeds = np.array(seeds, np.uint32)
        self._host_env = to_host_environment(environment, len(seeds))
        functions = _evaluation_functions(
            environment, policy, episodes_per_env, len(seeds), explore
        )
        self._begin, self._select, self._record = (
            jax.jit(function) for function in functions
        )

    def evaluate(
        self, acting: ArrayTree, evaluation_index: int = 0
    ) -> EvaluationResult:
        """Evaluates all episodes. `acting` has a leading axis for the seeds.

        `evaluation_index` selects the random numbers of the evaluation. Evaluation uses
        its own random stream, so it never changes training.
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
        """The number of seeds."""
        return len(self._seeds)

    def shapes(self, acting: ArrayTree) -> tuple[ArrayTree, int]:
        """The shapes of the arrays of one step, and the minimum bytes of temporaries.

        Does not allocate memory. `acting` may consist of shapes.
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
        stream_index = jax.ShapeDtypeStruct((2,), np.int32)
        select = self._select.trace(acting, tally, seeds, stream_index)
        programs, outputs = [select], select.out_info
        if environment.pure:
            action, _, noise = outputs
            step = jax.jit(jax.vmap(environment.step, (0, 0, 0, None)))
            programs.append(step.trace(state, action, noise, False))
        temporaries = max(temporary_bytes(program.jaxpr) for program in programs)
        # The old and the new state and tally exist simultaneously.
        return (state, state, tally, tally, outputs), temporaries

    def frames(
        self, acting: ArrayTree, evaluation_index: int = 0
    ) -> Iterator[tuple[EvaluationStep, np.ndarray]]:
        """Yields every step of the first environment, with its image.

        The last image of an episode is that of its final state, with `action` None. It
        is missing if the environment was not built with `rendering`.
        """
        for step, _ in self._steps(acting, evaluation_index):
            if step is None:
                continue
            is_final = step.action is None
            render = self._host_env.render_final if is_final else self._host_env.render
            if (image := render(step.state, 0)) is not None:
                yield step, image

    def _steps(
        self, acting: ArrayTree, evaluation_index: int
    ) -> Iterator[tuple[EvaluationStep | None, _EvaluationState]]:
        """Yields every step until all environments are done, then the final tally.

        A step without an action is the end of an episode of the first environment.
        """
        environment, seeds = self._host_env, self._seeds
        reset_seeds = [
            np.random.SeedSequence(
                [int(seed), EVALUATION, evaluation_index]
            ).generate_state(1)[0]
            for seed in seeds
        ]
        state, obs = environment.reset(np.array(reset_seeds, np.uint32))
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
                previous = tally
                state, timestep = environment.step(state, action, noise, cut)
                tally = self._record(tally, policy, timestep, cut)
                reward = timestep.reward
                if timestep.last[0, 0]:
                    total = np.asarray(previous.running_return) + reward
                    length = np.asarray(previous.length) + 1
                    yield EvaluationStep(state, None, reward, total, length), tally
                if np.all(np.asarray(tally.num_finished) >= self.episodes_per_env):
                    break
            yield None, tally
        finally:
            environment.close(state)


def _evaluation_functions(
    environment: Environment,
    policy: Policy,
    episodes_per_env: int,
    seeds: int,
    explore: bool,
) -> tuple[Callable, ...]:
    """Returns `begin`, `select` and `record`, over all seeds."""
    batch = environment.num_envs
    act = policy.explore if explore else policy.exploit

    def begin(obs: Array) -> _EvaluationState:
        table = jnp.zeros((batch, episodes_per_env), jnp.float32)
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

    def select(
        acting: ArrayTree, tally: _EvaluationState, seed: Array, stream_index: Array
    ) -> tuple[Array, ArrayTree, ArrayTree]:
        # Evaluation uses its own random stream, so it never changes training.
        evaluation_key = jax.random.fold_in(
            stream_key(seed, EVALUATION), stream_index[0]
        )
        act_key, step_key = jax.random.split(
            jax.random.fold_in(evaluation_key, stream_index[1])
        )
        noise = policy.draw(act_key, batch)
        decision, state = act(acting, tally.obs, tally.policy, tally.first, noise)
        return decision.action, state, environment.draw(step_key)

    def record(
        tally: _EvaluationState, state: ArrayTree, timestep: TimeStep, cut: Array
    ) -> _EvaluationState:
        total, length = tally.running_return + timestep.reward, tally.length + 1
        # Partial sums are written too: the last write of a row is the whole episode.
        row = jnp.arange(batch), tally.num_finished
        return _EvaluationState(
            obs=timestep.obs,
            first=timestep.last,
            policy=state,
            running_return=jnp.where(timestep.last, 0, total),
            length=jnp.where(timestep.last, 0, length),
            num_finished=tally.num_finished + timestep.last,
            returns=tally.returns.at[row].set(total, mode="drop"),
            lengths=tally.lengths.at[row].set(length, mode="drop"),
            num_cut=tally.num_cut
            + jnp.sum(cut & (tally.num_finished < episodes_per_env)),
        )

    return (
        vmap_seeds(begin, seeds, (0,), 0),
        vmap_seeds(select, seeds, (0, 0, 0, None), (0, 0, 0)),
        vmap_seeds(record, seeds, (0, 0, 0, None), 0),
    )
