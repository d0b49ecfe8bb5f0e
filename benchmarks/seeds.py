"""DQN with one, eight and 32 seeds, in rlcli and in plain JAX loops of the same seeds.

    python -m benchmarks.seeds [SEEDS]

The recipe of `benchmarks.loop`. rlcli runs as in `rlcli train`, with its default log
and layout, and without its files. The plain loop is that of `plain_dqn`, vmapped over
the seeds of each device and sharded over the same devices. (Every seed counts its
steps. A common counter was slower: XLA then copies the ring in every step.)
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from benchmarks import pairs
from benchmarks.loop import RECIPE
from rlcli.runs import thread_layout
from rlcli.xla import threads

SEEDS = (1, 8, 32)
STEPS, ROUNDS = 12_800, 9  # steps of each seed


def main(seeds: int) -> None:
    """Prints steps per second of all seeds together, and the ratio."""
    layout = thread_layout.choose_layout(RECIPE, seeds)
    threads.apply_layout(layout)
    threads.disable_async_dispatch()
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, PartitionSpec

    from benchmarks import plain_dqn
    from rlcli.assembly import build
    from rlcli.recipe import load_recipe
    from rlcli.training.experiment.experiment import Experiment
    from rlcli.xla.numeric_limits import INT32_MAX

    no_end = f"train.steps={INT32_MAX}", f"train.checkpoint.every={INT32_MAX}"
    recipe = load_recipe(RECIPE, [f"train.seeds={seeds}", *no_end])
    experiment = Experiment(recipe, build(recipe))
    experiment.program.begin()

    def run_rlcli(steps: int) -> Any:
        experiment.advance(steps // seeds)
        return experiment.program.progress.iteration

    begin, advance = plain_dqn.make()
    states = jax.vmap(begin)(jnp.arange(seeds))
    if seeds == 1:
        states, advance_all = begin(0), advance
    else:
        share = PartitionSpec("seeds")
        shared = jax.shard_map(
            jax.vmap(advance, (0, None)),
            mesh=Mesh(np.array(jax.devices()[: layout.devices]), ("seeds",)),
            in_specs=(share, PartitionSpec()),
            out_specs=share,
            check_vma=False,
        )
        advance_all = jax.jit(shared, donate_argnums=0)

    def run_plain(steps: int) -> Any:
        nonlocal states
        states = advance_all(states, steps // seeds // plain_dqn.BLOCK)
        return states

    pairs.compare(
        f"DQN, seeds: {seeds}, devices: {layout.devices}",
        {"rlcli": pairs.Loop(run_rlcli, seeds * STEPS)},
        {"plain": pairs.Loop(run_plain, seeds * STEPS)},
        ROUNDS,
    )


if __name__ == "__main__":
    if sys.argv[1:]:
        main(int(sys.argv[1]))
    else:
        for number in SEEDS:
            command = [sys.executable, "-m", "benchmarks.seeds", str(number)]
            subprocess.run(command, check=True)
