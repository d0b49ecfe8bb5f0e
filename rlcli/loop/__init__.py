"""Loop: the only training loop, compiled or on the host, for every algorithm.

Belongs here: progress, `advance`, both loops, agents, `episodes` for evaluation.
May import: `environments.adapters.host`, and the ground. Names no algorithm.

Its device side is one pure function: `advance` takes an environment's answer, completes
the transition, learns when the unroll is full, and decides upon the next action. For a
pure environment `step ∘ advance` is compiled into chunks of many iterations; for one on
the host `advance` is one dispatch per environment step. Both give the same bits.
"""

from __future__ import annotations

from rlcli.loop.compiled import compiled_loop
from rlcli.loop.engine import Loop
from rlcli.loop.host import host_loop, timestep_shapes
from rlcli.loop.progress import Setup
from rlcli.loop.seeds import vmap_seeds
from rlcli.types import Clock

__all__ = ["Loop", "make_loop", "timestep_shapes", "vmap_seeds"]


def make_loop(setup: Setup) -> Loop:
    """The loop of a setup: compiled where the environment allows it."""
    environment, _ = setup.parts(Clock.zero())
    return compiled_loop(setup) if environment.pure else host_loop(setup, environment)
