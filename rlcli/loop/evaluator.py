"""Evaluator: evaluation of a policy without learning, for all seeds simultaneously.

Episodes of a pure environment are one compiled program, which records their steps for
videos. Others are stepped from the host, and so are those of `Evaluator.transitions`.
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from rlcli.environments.adapters.host import to_host_environment
from rlcli.loop import timestep_shapes, vmap_seeds
from rlcli.loop.compiled_episodes import CompiledEpisodes, CompiledEpisodesState
from rlcli.loop.episode_records import (
    EpisodeFunctions,
    EpisodeRecords,
    evaluation_reset_seed,
)
from rlcli.loop.seeds import drop_padding, squeeze_seed
from rlcli.quoting import printable
from rlcli.spaces.canonical import canonical_action
from rlcli.types import START, Array, ArrayTree, Environment, Inputs, Policy, Transition
from rlcli.xla.temporaries import temporary_bytes

_MAX_ENVIRONMENTS = 128  # parallel environments of an evaluation …
_MAX_HOST_ENVIRONMENTS = 10  # … and if they belong to another library
MAX_EPISODE_STEPS = 10_000  # longer episodes are truncated: some would never end


class EvaluationResult(NamedTuple):
    """Returns and lengths, `[seeds, episodes]`."""

    returns: np.ndarray
    lengths: np.ndarray
    num_cut: int  # episodes that had not ended after `MAX_EPISODE_STEPS`
    info: Mapping[str, np.ndarray]  # what the environment logs, `[seeds, episodes]`
    # The numbers of the environment that differ between episodes, `[seeds, episodes]`
    parameters: Mapping[str, np.ndarray] = {}


class EvaluationStep(NamedTuple):
    """The state of an evaluation before a step, or after the end of an episode."""

    state: ArrayTree  # of a pure environment that of the first seed
    action: ArrayTree  # [S, B, ...]; None where an episode has ended
    reward: Float[Array, "S B"]  # of the previous step
    running_return: Float[Array, "S B"]  # the return so far
    length: Int[Array, "S B"]  # steps so far
    # After the end of an episode of the first environment: what it logs of `info`
    info: Mapping[str, float] = MappingProxyType({})
    # The numbers of the first environment's episode, see `Environment.parameters`.
    parameters: Mapping[str, float] = MappingProxyType({})


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
        at: Callable[[Inputs], tuple[Environment, Policy]],
        seeds: Sequence[int],
        episodes_per_env: int,
        *,
        explore: bool = False,
        devices: int = 1,
        recording: bool = False,
    ) -> None:
        """`episodes_per_env` is the number of episodes that each environment counts.

        `at(inputs)` are the environment and the policy of a time; a host environment is
        always the same. `devices` share the seeds of a pure environment. `frames`
        requires `recording`.
        """
        self._at = at
        environment, policy = at(START)
        self.environment = environment
        self.episodes_per_env = episodes_per_env
        self._recording = recording
        self._seeds = np.array(seeds, np.uint32)
        self._host_env = to_host_environment(environment, len(seeds))
        functions = EpisodeFunctions(
            environment, policy, episodes_per_env, explore, MAX_EPISODE_STEPS
        )

        def select(
            acting: ArrayTree,
            inputs: Inputs,
            records: EpisodeRecords,
            seed: Array,
            index: Array,
        ) -> tuple[ArrayTree, ArrayTree, ArrayTree, Array]:
            _, policy = self._at(inputs)
            policy_noise, environment_noise = functions.draw(seed, index[0], index[1])
            action, state = functions.select(policy, acting, records, policy_noise)
            return action, state, environment_noise, functions.cut(records)

        self._begin, self._select, self._record = (
            jax.jit(vmap_seeds(function, len(seeds), axes, 0))
            for function, axes in (
                (functions.begin, (0,)),
                (select, (0, 0, 0, 0, None)),
                (functions.record, (0, 0, 0, 0)),
            )
        )
        self._compiled = (
            CompiledEpisodes(
                self._at, functions, len(seeds), devices=devices, recording=recording
            )
            if environment.pure
            else None
        )

    def evaluate(
        self, acting: ArrayTree, evaluation_index: int = 0, inputs: Inputs = START
    ) -> EvaluationResult:
        """Evaluates all episodes. `acting` has a leading axis for the seeds.

        `evaluation_index` selects the random numbers of the evaluation. Evaluation uses
        its own random stream, so it never changes training. `inputs` have the time of
        the evaluation, of all seeds or `[S]`.
        """
        if self._compiled is None:
            *_, (_, records) = self._steps(acting, evaluation_index, inputs)
        else:
            *_, state = self._calls(self._compiled, acting, evaluation_index, inputs)
            records = drop_padding(len(self._seeds), state.records)
        shape = (len(self._seeds), -1)
        return EvaluationResult(
            np.asarray(records.returns).reshape(shape),
            np.asarray(records.lengths).reshape(shape),
            int(np.sum(records.num_cut)),
            *(
                {name: np.asarray(v).reshape(shape) for name, v in tables.items()}
                for tables in (records.info, records.parameters)
            ),
        )

    def _inputs(self, inputs: Inputs) -> Inputs:
        """The inputs of each seed, `[S]`."""
        return jax.tree.map(
            lambda leaf: np.broadcast_to(np.asarray(leaf), self.seeds), inputs
        )

    def _no_reward(self) -> np.ndarray:
        """The reward before the first step."""
        return np.zeros((self.seeds, self.environment.num_envs), np.float32)

    def _reset_seeds(self, evaluation_index: int) -> Any:
        """The seeds of the first episodes, uint32 `[S]`."""
        numbers = [
            evaluation_reset_seed(int(seed), evaluation_index) for seed in self._seeds
        ]
        return np.array(numbers, np.uint32)

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return len(self._seeds)

    def shapes(self, acting: ArrayTree) -> tuple[ArrayTree, int]:
        """The shapes of the arrays of an evaluation, and the bytes of temporaries.

        Does not allocate memory. `acting` may consist of shapes.
        """
        seeds = jax.ShapeDtypeStruct(self._seeds.shape, self._seeds.dtype)
        inputs = self._inputs(START)
        if self._compiled is not None:
            return self._compiled.shapes((acting, inputs), seeds)
        obs, _ = timestep_shapes(self.seeds, self.environment)
        records = jax.eval_shape(self._begin, obs)
        stream_index = jax.ShapeDtypeStruct((2,), np.int32)
        select = self._select.trace(acting, inputs, records, seeds, stream_index)
        # The old and the new records exist simultaneously.
        return (records, records, select.out_info), temporary_bytes(select.jaxpr)

    def frames(
        self, acting: ArrayTree, evaluation_index: int = 0, inputs: Inputs = START
    ) -> Iterator[tuple[EvaluationStep, np.ndarray]]:
        """Yields every step of the first environment, with its image.

        Actions are those that the environment gets, in its own units. The last image
        of an episode is that of its final state, with `action` None. It is missing if
        the environment was not built with `rendering`.

        Raises:
            ValueError: if the environment is pure and the evaluator does not record.
        """
        if not self._recording and self.environment.pure:
            raise ValueError("frames of a pure environment need `recording=True`")
        if self._compiled is None:
            steps = (step for step, _ in self._steps(acting, evaluation_index, inputs))
            environment = self.environment
        else:
            calls = self._calls(self._compiled, acting, evaluation_index, inputs)
            steps = self._recorded_steps(calls)
            environment, _ = self._at(squeeze_seed(self._inputs(inputs), 0))
        convert = canonical_action(environment.own.action).to_external
        numbers: Mapping[str, float] = {}
        for step in steps:
            if step is None:
                continue
            is_final = step.action is None
            if not is_final:  # else those of the next episode
                numbers = _first_numbers(environment.parameters(step.state))
            render = environment.render_final if is_final else environment.render
            if (image := render(step.state, 0)) is not None:
                action = None if is_final else convert(step.action)
                yield step._replace(action=action, parameters=numbers), image

    def _recorded_steps(
        self, calls: Iterator[CompiledEpisodesState]
    ) -> Iterator[EvaluationStep]:
        """Yields the steps that the compiled program has recorded, as `_steps` does."""
        start, reward = 0, self._no_reward()
        for state in calls:
            steps, after = jax.device_get((state.recording, state.environment))
            stop = int(state.time[0])
            for row in range(stop - start):
                step = _take_row(steps, row)
                total, length = step.running_return, step.length
                first = squeeze_seed(step.state, 0)
                yield EvaluationStep(first, step.action, reward, total, length)
                reward = step.reward
                if step.last[0, 0]:
                    is_latest = start + row + 1 == stop
                    final = after if is_latest else _take_row(steps.state, row + 1)
                    total, length = total + reward, length + 1
                    first = squeeze_seed(final, 0)
                    info = {name: float(x[0, 0]) for name, x in step.info.items()}
                    yield EvaluationStep(first, None, reward, total, length, info)
            start = stop

    def _calls(
        self,
        compiled: CompiledEpisodes,
        acting: ArrayTree,
        evaluation_index: int,
        inputs: Inputs,
    ) -> Iterator[CompiledEpisodesState]:
        """Yields the state of the compiled program after each call of it."""
        resets = self._reset_seeds(evaluation_index)
        agents = acting, self._inputs(inputs)
        return compiled.run(agents, self._seeds, resets, evaluation_index)

    def transitions(
        self, acting: ArrayTree, evaluation_index: int = 0, inputs: Inputs = START
    ) -> Iterator[Transition]:
        """Yields the steps `[S, B, ...]` of all environments, without an end.

        The environments are those of the latest time of all seeds. The extras are their
        numbers, see `Environment.parameters`.
        """
        inputs, seeds = self._inputs(inputs), self._seeds
        environment = self._host_env
        if self.environment.pure:
            latest, _ = self._at(jax.tree.map(np.max, inputs))
            environment = to_host_environment(latest, self.seeds)
        state, obs = environment.reset(self._reset_seeds(evaluation_index))
        records = self._begin(obs)
        try:
            for time in itertools.count():
                stream_index = np.array([evaluation_index, time], np.int32)
                action, policy, noise, cut = self._select(
                    acting, inputs, records, seeds, stream_index
                )
                action, cut = jax.tree.map(np.asarray, (action, cut))
                numbers = environment.parameters(state)
                state, timestep = environment.step(state, action, noise, cut)
                yield Transition(
                    obs=jax.tree.map(np.asarray, records.obs),
                    action=action,
                    reward=timestep.reward,
                    discount=timestep.discount,
                    next_obs=timestep.next_obs,
                    first=np.asarray(records.first),
                    last=timestep.last | cut,
                    extras=numbers,
                )
                timestep = timestep._replace(info={})
                records = self._record(records, policy, timestep, cut)
        finally:
            _close(environment, state)

    def _steps(
        self, acting: ArrayTree, evaluation_index: int, inputs: Inputs
    ) -> Iterator[tuple[EvaluationStep | None, EpisodeRecords]]:
        """Yields every step until all environments are done, then the final records.

        A step without an action is the end of an episode of the first environment.
        """
        environment, seeds = self._host_env, self._seeds
        inputs = self._inputs(inputs)
        state, obs = environment.reset(self._reset_seeds(evaluation_index))
        records, reward = self._begin(obs), self._no_reward()
        info: dict[str, np.ndarray] = {}  # [S, B, episodes] each
        parameters: dict[str, np.ndarray] = {}

        def write_ends(
            tables: dict[str, np.ndarray], values: Mapping[str, Array], ended: Array
        ) -> None:
            """Writes values of the episodes that end in this step."""
            if not values:
                return
            episodes = np.asarray(records.num_finished)
            ended = ended & (episodes < self.episodes_per_env)
            places = (*np.nonzero(ended), episodes[ended])
            for name, value in values.items():
                shape = (*episodes.shape, self.episodes_per_env)
                table = tables.setdefault(name, np.zeros(shape, np.float32))
                table[places] = np.asarray(value)[ended]

        try:
            for time in itertools.count():
                stream_index = np.array([evaluation_index, time], np.int32)
                action, policy, noise, cut = self._select(
                    acting, inputs, records, seeds, stream_index
                )
                action, cut = jax.tree.map(np.asarray, (action, cut))
                yield (
                    EvaluationStep(
                        state, action, reward, records.running_return, records.length
                    ),
                    records,
                )
                previous, numbers = records, environment.parameters(state)
                state, timestep = environment.step(state, action, noise, cut)
                logged = timestep.info
                write_ends(info, logged, timestep.last | cut)
                write_ends(parameters, numbers, timestep.last | cut)
                timestep = timestep._replace(info={})
                records = self._record(records, policy, timestep, cut)
                reward = timestep.reward
                if timestep.last[0, 0] or cut[0, 0]:
                    total = np.asarray(previous.running_return) + reward
                    length = np.asarray(previous.length) + 1
                    end = {name: float(x[0, 0]) for name, x in logged.items()}
                    yield (
                        EvaluationStep(state, None, reward, total, length, end),
                        records,
                    )
                if np.all(np.asarray(records.num_finished) >= self.episodes_per_env):
                    break
            yield None, records._replace(info=info, parameters=parameters)
        finally:
            _close(environment, state)


def _take_row(tree: ArrayTree, row: int) -> ArrayTree:
    """One row of recorded arrays, `[S, T, ...]` to `[S, ...]`."""
    return jax.tree.map(lambda leaf: leaf[:, row], tree)


def _first_numbers(parameters: Mapping[str, ArrayTree]) -> dict[str, float]:
    """The parameters of the first environment, of those `[B]` or `[S, B]`."""
    return {name: float(np.ravel(value)[0]) for name, value in parameters.items()}


def _close(environment: Environment, state: ArrayTree) -> None:
    """Closes an environment, and says which of its episodes ended by a failure."""
    assert environment.host is not None
    restarts = environment.host.restarts(state)
    for message in restarts.messages if restarts else ():
        print(f"warning: an episode ended: {printable(message)}", file=sys.stderr)
    environment.host.close(state)
