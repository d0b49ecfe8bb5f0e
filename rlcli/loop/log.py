"""The log of a chunk: statistics and metrics at several points, kept on the device.

A log point does not end a chunk. The program writes a row into a buffer, and the host
fetches all rows of a chunk together.

Updates run in a loop whose count is the number of updates due: none before
`train.start`, and with `per_step: 0.25` one per four environment steps. Metrics are
computed only in the last iteration with an update before each log point.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.loop.episode_statistics import EpisodeStatistics
from rlcli.types import Array
from rlcli.xla.control_flow import update_if
from rlcli.xla.packing import PackedTree

MAX_LOG_POINTS = 128  # of one chunk


class Log(NamedTuple):
    """A row for each log point, `[S, MAX_LOG_POINTS]` each; unused rows come last."""

    statistics: EpisodeStatistics  # of finished episodes; `running_…` are empty
    metrics: Mapping[str, Array]  # of the last update before the log point


class LogBuffer(NamedTuple):
    """The rows of one seed while the program writes them."""

    row: Array  # int32: the next row to be written
    rows: Mapping[str, Array]  # by dtype: packed scalars `[MAX_LOG_POINTS, n]`


def log_points(iterations: int | Sequence[int]) -> np.ndarray:
    """Pads increasing iterations to `[MAX_LOG_POINTS]` int32, by repeating the last."""
    points = np.atleast_1d(np.asarray(iterations, np.int32))
    if not 0 < len(points) <= MAX_LOG_POINTS:
        raise ValueError(f"expected 1 to {MAX_LOG_POINTS} points, got {len(points)}")
    return np.pad(points, (0, MAX_LOG_POINTS - len(points)), "edge")


def empty_buffer(packed: PackedTree) -> LogBuffer:
    """An empty buffer for rows of packed scalars; large arrays are not logged."""
    rows = {
        dtype: jnp.zeros((MAX_LOG_POINTS, *leaf.shape), leaf.dtype)
        for dtype, leaf in packed.small.items()
    }
    return LogBuffer(jnp.int32(0), rows)


def write_if(is_due: Array, buffer: LogBuffer, packed: PackedTree) -> LogBuffer:
    """Writes the next row if it is due."""

    def write(_, buffer: LogBuffer) -> LogBuffer:
        rows = {
            dtype: jax.lax.dynamic_update_index_in_dim(
                rows, packed.small[dtype], buffer.row, 0
            )
            for dtype, rows in buffer.rows.items()
        }
        return LogBuffer(buffer.row + 1, rows)

    return update_if(is_due, write, buffer)


def finished_episodes(statistics: EpisodeStatistics) -> EpisodeStatistics:
    """The statistics without the running ones, of the current episodes."""
    return statistics._replace(
        running_return=(), running_length=(), running_info={}, running_new={}
    )
