"""Loop: the only training loop, compiled or on the host, for every algorithm.

Belongs here: progress, `advance`, both loops, agents, `evaluator`.
May import: `environments.adapters.host`, and the ground. Contains no code for a
particular algorithm.

The device side is one pure function: `advance` takes a timestep, completes the
transition, learns when the unroll is full, and selects the next action. With a pure
environment `step ∘ advance` is compiled into chunks of many iterations. With a host
environment `advance` is one dispatch per environment step. Both compute the same
numbers, up to the rounding of the compiler.
"""

from rlcli.loop.compiled import compiled_loop
from rlcli.loop.host_loop import host_loop
from rlcli.loop.host_loop import timestep_shapes as timestep_shapes
from rlcli.loop.progress import Loop as Loop
from rlcli.loop.progress import Setup
from rlcli.loop.seeds import vmap_seeds as vmap_seeds


def make_loop(setup: Setup) -> Loop:
    """Returns the loop of a setup: compiled if the environment is pure."""
    return compiled_loop(setup) if setup.environment.pure else host_loop(setup)
