"""Episode records: the part of an evaluation that is the same in every loop.

The first `episodes_per_env` episodes of each environment count. Counting the first
episodes to finish over all environments would favour short ones.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.episode_info import accumulate, finish
from rlcli.errors import RlcliError, quote
from rlcli.loop.progress import EVALUATION, stream_key
from rlcli.types import Array, ArrayTree, Environment, Key, Policy, TimeStep
from rlcli.xla.numeric_limits import INT32_MAX


class EpisodeRecords(NamedTuple):
    """The current episodes of one seed, `[B]`, and the results of finished ones."""

    obs: ArrayTree
    first: Array
    policy: ArrayTree
    running_return: Array
    length: Array
    num_finished: Array  # int32 [B]: finished episodes
    returns: jax.Array  # [B, episodes_per_env]
    lengths: jax.Array
    num_cut: Array  # int32 [B]: counted episodes that only the evaluation has ended
    # What the current episodes log of `TimeStep.info` so far, and finished ones
    running_info: Mapping[str, Array] = {}
    info: Mapping[str, jax.Array] = {}  # [B, episodes_per_env]
    # `Environment.parameters` of the current and the finished episodes
    parameters: Mapping[str, jax.Array] = {}  # [B, episodes_per_env]


def evaluation_keys(
    seed: Array | int, evaluation_index: Array | int, time: Array | int
) -> tuple[Key, Key]:
    """The keys of the policy and of the environment at one step of an evaluation.

    Evaluation uses its own random stream, so it never changes training.
    """
    evaluation_key = jax.random.fold_in(stream_key(seed, EVALUATION), evaluation_index)
    act_key, step_key = jax.random.split(jax.random.fold_in(evaluation_key, time))
    return act_key, step_key


def check_evaluation_index(index: int) -> None:
    """Refuses the index of an evaluation, `--seed` of a command, beyond int32."""
    if not (isinstance(index, int | np.integer) and 0 <= index <= INT32_MAX):
        raise RlcliError(
            f"expected a seed of episodes from 0 to {INT32_MAX:,}, got {quote(index)}"
        )


def evaluation_reset_seed(seed: int, evaluation_index: int) -> int:
    """The seed, 32 bits, with which an evaluation starts its first episodes."""
    check_evaluation_index(evaluation_index)
    sequence = np.random.SeedSequence([seed, EVALUATION, evaluation_index])
    return int(sequence.generate_state(1)[0])


@dataclasses.dataclass(frozen=True, eq=False)
class EpisodeFunctions:
    """The functions of an evaluation of `policy` in `environment`, for one seed.

    Both are those of any time. Episodes are truncated after `max_episode_steps`.
    """

    environment: Environment
    policy: Policy
    episodes_per_env: int
    explore: bool
    max_episode_steps: int

    def begin(
        self, obs: ArrayTree, names: Sequence[str] = (), parameters: Sequence[str] = ()
    ) -> EpisodeRecords:
        """The records at the start; `names` are those of `info` and `parameters`."""
        batch = self.environment.num_envs
        table = jnp.zeros((batch, self.episodes_per_env), jnp.float32)
        counter = jnp.zeros(batch, jnp.int32)
        return EpisodeRecords(
            obs=obs,
            first=jnp.ones(batch, bool),
            policy=self.policy.initial(batch),
            running_return=jnp.zeros(batch, jnp.float32),
            length=counter,
            num_finished=counter,
            returns=table,
            lengths=table,
            num_cut=counter,
            running_info=dict.fromkeys(names, jnp.zeros(batch, jnp.float32)),
            info=dict.fromkeys(names, table),
            parameters=dict.fromkeys(parameters, table),
        )

    def draw(
        self, seed: Array, evaluation_index: Array, time: Array
    ) -> tuple[ArrayTree, ArrayTree]:
        """The noise of the policy and of the environment at a time."""
        act_key, step_key = evaluation_keys(seed, evaluation_index, time)
        noise = self.policy.draw(act_key, self.environment.num_envs)
        return noise, self.environment.draw(step_key)

    def select(
        self,
        policy: Policy,
        acting: ArrayTree,
        records: EpisodeRecords,
        noise: ArrayTree,
    ) -> tuple[ArrayTree, ArrayTree]:
        """The action, and the next state of the policy; `policy` is that of a time."""
        act = policy.explore if self.explore else policy.exploit
        decision, state = act(acting, records.obs, records.policy, records.first, noise)
        return decision.action, state

    def cut(self, records: EpisodeRecords) -> Array:
        """Which episodes the evaluation truncates after this step, bool `[B]`."""
        return records.length + 1 >= self.max_episode_steps

    def record(
        self,
        records: EpisodeRecords,
        state: ArrayTree,
        timestep: TimeStep,
        cut: Array,
        parameters: Mapping[str, Array] = MappingProxyType({}),
    ) -> EpisodeRecords:
        """The records after a step; their `first` says which episodes have ended.

        `parameters` are those of the environment before the step.
        """
        rules = self.environment.info
        has_ended, only_cut = timestep.last | cut, cut & ~timestep.last
        total, length = records.running_return + timestep.reward, records.length + 1
        # Partial sums are written too: the last write of a row is the whole episode.
        row = jnp.arange(self.environment.num_envs), records.num_finished
        running_info = accumulate(rules, records.running_info, timestep.info)
        info = finish(rules, running_info, length)
        return EpisodeRecords(
            obs=timestep.obs,
            first=has_ended,
            policy=state,
            running_return=jnp.where(has_ended, 0, total),
            length=jnp.where(has_ended, 0, length),
            num_finished=records.num_finished + has_ended,
            returns=records.returns.at[row].set(total, mode="drop"),
            lengths=records.lengths.at[row].set(length, mode="drop"),
            num_cut=records.num_cut + (only_cut & ~self.has_finished(records)),
            running_info={
                k: jnp.where(has_ended, 0, v) for k, v in running_info.items()
            },
            info={
                name: table.at[row].set(info[name], mode="drop")
                for name, table in records.info.items()
            },
            parameters={
                name: table.at[row].set(parameters[name], mode="drop")
                for name, table in records.parameters.items()
            },
        )

    def has_finished(self, records: EpisodeRecords) -> Array:
        """Whether each environment has finished all its episodes, bool `[B]`."""
        # No counter reaches a number that is not an int32.
        return records.num_finished >= min(self.episodes_per_env, INT32_MAX)
