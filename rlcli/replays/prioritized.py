"""Prioritized experience replay."""

from __future__ import annotations

from typing import Literal

from rlcli.registry import register
from rlcli.replays.frames import Frames, frames_ring
from rlcli.replays.priorities import leaves_of, proportional, ranked, weighed
from rlcli.replays.rings import spacious, steps_ring
from rlcli.replays.windows import Windows
from rlcli.types import Count, NonNegative, Probability, Replay


@register("replay")
def prioritized(
    window: int,
    unroll: int,
    num_envs: int,
    *,
    capacity: Count = 50_000,
    batch_size: Count = 32,
    by: Literal["td_error", "rank", "gradient_norm"] = "td_error",
    alpha: NonNegative = 0.6,
    beta: Probability = 0.4,
    epsilon: NonNegative = 1e-6,
    sort_every: Count = 1_000,
    frames: Frames | None = None,
) -> Replay:
    """Draws windows the more often, the more there is to learn from them.

        P(i) = mᵢ / Σ m        m = (p + ε)^α, or 1 / rank(p)^α        w = (min P / P)^β

    p is what the updater reported of a window when it learnt from it last: |δ|, also
    for `rank` (Schaul et al., 2015, https://arxiv.org/abs/1511.05952). For
    `gradient_norm` it has to be ‖∇ loss‖ of each row by itself (Lahire et al., 2022,
    https://arxiv.org/abs/2110.01528): updaters that can report it have an option
    `priority`. New windows have the largest p so far. α and β may follow schedules; a
    mass keeps the α it was set with. The minimum is over the batch, of which every
    window is drawn from a share of its own of the whole mass. For `rank` all are sorted
    once in `sort_every` unrolls. `frames` are the options of replay `frames`, which
    stores each frame once.
    """
    if frames is None:
        ring = steps_ring(capacity, unroll, num_envs)
    else:
        ring = frames_ring(capacity, unroll, num_envs, **frames)
    windows = Windows(ring, unroll, window)
    needs = "the tracer needs" if frames is None else "it needs"
    spacious("prioritized", capacity, windows.least, unroll, num_envs, needs)
    leaves = leaves_of(windows, num_envs)
    if by == "rank":
        masses = ranked(leaves, alpha, sort_every)
    else:
        masses = proportional(leaves, alpha, epsilon)
    replay = weighed(windows, num_envs, capacity, batch_size, masses, beta)
    return replay._replace(priority="gradient_norm" if by == "gradient_norm" else "")
