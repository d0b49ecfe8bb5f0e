"""Episode statistics: returns, lengths and logged values of the episodes of a run."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Float32, Int32, Real

from rlcli.environments.episode_info import accumulate, finish
from rlcli.errors import RlcliError, quote, suggest
from rlcli.schedules import Success
from rlcli.types import Array, InfoRule, TimeStep
from rlcli.xla.data_axis import max_over_devices, sum_over_devices

_AVERAGE_EPISODES = 10  # horizon of `average_return`


class SuccessCount(NamedTuple):
    """How often a condition on episodes has held (`schedules.Success`)."""

    count: Int32[Array, "*S"]
    # Of the episodes that have begun since, and ended.
    episodes: Int32[Array, "*S"]
    average: Float32[Array, "*S"]


class EpisodeStatistics(NamedTuple):
    """Returns, lengths and logged values of episodes."""

    running_return: Float32[Array, "*S B"]
    running_length: Int32[Array, "*S B"]
    episodes: Int32[Array, "*S"]  # finished so far
    # Of the last finished episode; the mean if several end in the same step.
    last_return: Float32[Array, "*S"]
    last_length: Float32[Array, "*S"]
    average_return: Float32[Array, "*S"]  # running average over about ten episodes
    # What episodes log of `TimeStep.info`: the current ones so far, the last finished
    # one, and the sum and the maximum over all finished episodes.
    running_info: Mapping[str, Float32[Array, "*S B"]] = {}
    last_info: Mapping[str, Float[Array, "*S"]] = {}
    total_info: Mapping[str, Float[Array, "*S"]] = {}
    max_info: Mapping[str, Float[Array, "*S"]] = {}
    successes: Mapping[str, SuccessCount] = {}  # by the key of the condition
    # Whether the current episodes began after its last success, so that they count.
    running_new: Mapping[str, Bool[Array, "*S B"]] = {}


def begin_statistics(
    num_envs: int, info_keys: Sequence[str], conditions: Sequence[str] = ()
) -> EpisodeStatistics:
    """The statistics before the first step of a seed."""
    zero = jnp.float32(0)
    return EpisodeStatistics(
        running_return=jnp.zeros(num_envs, jnp.float32),
        running_length=jnp.zeros(num_envs, jnp.int32),
        episodes=jnp.int32(0),
        last_return=zero,
        last_length=zero,
        average_return=zero,
        running_info={name: jnp.zeros(num_envs, jnp.float32) for name in info_keys},
        last_info={name: zero for name in info_keys},
        total_info={name: zero for name in info_keys},
        max_info={name: jnp.float32(-jnp.inf) for name in info_keys},
        successes={
            key: SuccessCount(jnp.int32(0), jnp.int32(0), zero) for key in conditions
        },
        running_new={key: jnp.ones(num_envs, bool) for key in conditions},
    )


def update_statistics(
    statistics: EpisodeStatistics,
    timestep: TimeStep,
    rules: Mapping[str, InfoRule] = MappingProxyType({}),
    conditions: Mapping[str, Success] = MappingProxyType({}),
) -> EpisodeStatistics:
    """Updates the statistics with one step of every environment, on all devices.

    `rules` are those of `Environment.info`, `conditions` those of `Setup`.
    """
    running_return = statistics.running_return + timestep.reward
    running_length = statistics.running_length + 1
    running_info = accumulate(rules, statistics.running_info, timestep.info)
    final_info = finish(rules, running_info, running_length)
    last = timestep.last
    running = (running_return, running_length, final_info)
    num_finished, finished = sum_over_devices(
        (
            jnp.sum(last, dtype=jnp.int32),
            jax.tree.map(lambda value: jnp.sum(jnp.where(last, value, 0)), running),
        )
    )
    has_finished = num_finished > 0
    divisor = jnp.maximum(num_finished, 1).astype(jnp.float32)
    mean_return, mean_length, mean_info = jax.tree.map(
        lambda total: total / divisor, finished
    )
    episodes = statistics.episodes + num_finished
    average = _update_average(
        statistics.average_return, mean_return, episodes, num_finished
    )
    final = {"return": running_return, "length": running_length, **final_info}
    successes = {
        key: _update_success(
            success, conditions[key], final, last & statistics.running_new[key]
        )
        for key, success in statistics.successes.items()
    }
    return EpisodeStatistics(
        running_return=jnp.where(last, 0, running_return),
        running_length=jnp.where(last, 0, running_length),
        episodes=episodes,
        last_return=jnp.where(has_finished, mean_return, statistics.last_return),
        last_length=jnp.where(has_finished, mean_length, statistics.last_length),
        average_return=average,
        running_info={
            k: jnp.where(last, 0, value) for k, value in running_info.items()
        },
        last_info={
            name: jnp.where(has_finished, value, statistics.last_info[name])
            for name, value in mean_info.items()
        },
        total_info={
            name: statistics.total_info[name] + value
            for name, value in finished[-1].items()
        },
        max_info=max_over_devices(
            {
                name: jnp.max(value, initial=statistics.max_info[name], where=last)
                for name, value in final_info.items()
            }
        ),
        successes=successes,
        running_new={
            key: last
            | (is_new & (successes[key].count == statistics.successes[key].count))
            for key, is_new in statistics.running_new.items()
        },
    )


def count_successes(statistics: EpisodeStatistics) -> dict[str, Int32[Array, "*S"]]:
    """The number of successes of each condition, see `Clock.successes`."""
    return {key: success.count for key, success in statistics.successes.items()}


def _update_average(
    average: Float32[Array, ""],
    mean: Float32[Array, ""],
    episodes: Int32[Array, ""],
    num_finished: Int32[Array, ""],
) -> Float32[Array, ""]:
    """The running average with the mean of `num_finished` of now `episodes` episodes.

    As in coax's TrainMonitor: the mean of the first ten episodes, then an exponential
    moving average.
    """
    horizon = jnp.clip(episodes, 1, _AVERAGE_EPISODES).astype(jnp.float32)
    rate = jnp.minimum(num_finished / horizon, 1)
    return average + rate * (mean - average)


def _update_success(
    success: SuccessCount,
    condition: Success,
    final: Mapping[str, Real[Array, "B"]],
    has_ended: Bool[Array, "B"],
) -> SuccessCount:
    """Counts a success if the average of at least ten new episodes is high enough.

    `final` is what is known of episodes that may just have ended.
    """
    if condition.metric not in final:
        raise RlcliError(
            f"a schedule waits for {quote(condition.metric)}, but the compiled program "
            f"knows only {', '.join(f'`{name}`' for name in final)} of its episodes",
            suggest(condition.metric, final),
        )
    ended = jnp.sum(has_ended, dtype=jnp.int32)
    values = jnp.where(has_ended, final[condition.metric], 0)
    total = jnp.sum(values, dtype=jnp.float32)
    num_ended, total = sum_over_devices((ended, total))
    mean = total / jnp.maximum(num_ended, 1).astype(jnp.float32)
    episodes = success.episodes + num_ended
    average = _update_average(success.average, mean, episodes, num_ended)
    holds = (episodes >= _AVERAGE_EPISODES) & (average > np.float32(condition.above))
    return SuccessCount(
        success.count + holds,
        jnp.where(holds, 0, episodes),
        jnp.where(holds, 0, average),
    )
