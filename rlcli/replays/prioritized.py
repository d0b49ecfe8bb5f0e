"""Prioritized experience replay."""

from typing import Literal

from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.replays.dataset import Fraction, mix_dataset, split_batch
from rlcli.replays.datasets.names import DataFile
from rlcli.replays.datasets.recipe_dataset import Dataset
from rlcli.replays.frames import FrameOptions, frame_ring
from rlcli.replays.priorities import (
    prioritized_replay,
    proportional_masses,
    rank_masses,
)
from rlcli.replays.rings import Windows, step_ring
from rlcli.types import Count, Divided, NonNegative, Probability, Replay


@register("replay")
def prioritized(
    window: int,
    unroll: int,
    num_envs: int,
    *,
    capacity: Divided = 50_000,
    batch_size: Divided = 32,
    by: Literal["td_error", "rank", "gradient_norm"] = "td_error",
    alpha: NonNegative = 0.6,
    beta: Probability = 0.4,
    epsilon: NonNegative = 1e-6,
    sort_every: Count = 1_000,
    frames: FrameOptions | None = None,
    prefill: DataFile | None = None,
    prefill_fraction: Fraction | None = None,
) -> Replay:
    """Prioritized experience replay (PER): samples by TD error or gradient norm.

        P(i) = mᵢ / Σ m        m = (p + ε)^α, or 1 / rank(p)^α        w = (min P / P)^β

    P(i) is the probability of window i, m its mass, and w its importance weight, where
    min P is the minimum over the batch. p is the priority that the updater last
    reported for the window. With `by: td_error` or `rank` it is |δ| (Schaul et al.,
    2015, https://arxiv.org/abs/1511.05952), unless the updater's option `priority`
    selects another one. `by: gradient_norm` requires ‖∇ loss‖ (Lahire et al., 2022,
    https://arxiv.org/abs/2110.01528): `q_learning` reports it with `priority:
    gradient_norm`. New windows get the largest p so far. α and β may be schedules; a
    mass keeps the α with which it was computed. Sampling is stratified: each window of
    the batch comes from its own equal share of the total mass. For `rank`, all
    priorities are sorted once every `sort_every` unrolls. `frames` are the options of
    replay `frames`, which stores each frame once. `prefill` is a file of `rlcli
    collect`, whose steps are the first in the ring; `prefill_fraction` is explained at
    replay `uniform`.
    """
    if frames is None:
        ring = step_ring(capacity, unroll, num_envs)
    else:
        ring = frame_ring(capacity, unroll, num_envs, **frames)
    windows = Windows(ring, window)
    reason = "the tracer needs" if frames is None else "it needs"
    ring.check_rows("prioritized", capacity, windows.min_steps, reason)
    if by == "rank":
        masses = rank_masses(windows.no_window, alpha, sort_every)
    else:
        masses = proportional_masses(windows.no_window, alpha, epsilon)
    own, rows = split_batch(batch_size, prefill, prefill_fraction)
    if frames is not None and prefill is not None and not rows and num_envs > 1:
        raise RlcliError(
            "`prefill` is divided among environments within episodes, whose earlier "
            "frames `frames` would lack",
            "use one environment, `prefill_fraction`, or no `frames`",
        )
    replay = prioritized_replay(windows, capacity, own, masses, beta)
    replay = replay._replace(
        traits=replay.traits._replace(
            required_priority=by if by == "gradient_norm" else "",
            dataset=prefill and Dataset.parse(prefill),
        )
    )
    return mix_dataset(replay, window, prefill, rows)
