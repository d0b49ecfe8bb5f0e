"""Loop: the only training loop, compiled or on the host, for every algorithm.

Belongs here: progress, `advance`, both loops, agents, `episodes` for evaluation.
May import: `environments.adapters.host`, and the ground. Names no algorithm.

Its device side is one pure function: `advance` takes an environment's answer, completes
the transition, learns when the unroll is full, and decides upon the next action. For a
pure environment `step ∘ advance` is compiled into chunks of many iterations; for one on
the host `advance` is one dispatch per environment step. Both give the same bits.
"""

from __future__ import annotations

from rlcli.loop.compiled import compiled
from rlcli.loop.engine import Loop
from rlcli.loop.host import hosted, timestep_shapes
from rlcli.loop.progress import Setup, midnight
from rlcli.loop.seeds import over_seeds

__all__ = ["Loop", "make", "over_seeds", "timestep_shapes"]


def make(setup: Setup) -> Loop:
    """The loop of a setup: compiled where the environment allows it."""
    environment, _ = setup.parts(midnight())
    return compiled(setup) if environment.pure else hosted(setup, environment)
