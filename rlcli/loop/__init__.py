"""The loop: how progress advances. The only one, for every algorithm.

Its device side is one pure function: `advance` takes an environment's answer, completes
the transition, learns when the unroll is full, and decides upon the next action. For a
pure environment `step ∘ advance` is compiled into chunks of many iterations; for one on
the host `advance` is one dispatch per environment step. Both give the same bits.
"""

from __future__ import annotations

from rlcli.loop.compiled import compiled
from rlcli.loop.engine import Loop
from rlcli.loop.hosted import hosted, timestep_shapes
from rlcli.loop.seeds import over_seeds
from rlcli.progress import Setup, midnight

__all__ = ["Loop", "make", "over_seeds", "timestep_shapes"]


def make(setup: Setup) -> Loop:
    """The loop of a setup: compiled where the environment allows it."""
    environment, _ = setup.parts(midnight())
    return compiled(setup) if environment.pure else hosted(setup, environment)
