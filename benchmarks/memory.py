"""Memory benchmark: the estimated and the actual memory of a run.

    python -m benchmarks.memory

Each run is a separate process. It checks its recipe, which gives the estimate, trains
for three chunks and writes a checkpoint. Its actual memory is the peak of its resident
memory minus the resident memory before the check.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = {
    "dqn_cartpole, 20 million rows": ("dqn_cartpole", ["replay.capacity=20_000_000"]),
    "dqn_breakout, 1 million rows": ("dqn_breakout", ["replay.capacity=1_000_000"]),
    "ppo_cartpole, 8 192 environments": (
        "ppo_cartpole",
        ["environment.num_envs=8192", "train.steps=100_000_000"],
    ),
}
CHUNKS = 3
MIB = 2**20


def main() -> None:
    """Prints the table of docs/measurements.md."""
    print("| run | estimate | state | peak | ratio |")
    print("|---|---|---|---|---|")
    for name, (recipe, sets) in RUNS.items():
        program = [sys.executable, "-m", "benchmarks.memory", recipe, *sets]
        result = subprocess.run(program, check=True, capture_output=True, text=True)
        measured = json.loads(result.stdout)
        sizes = [measured[key] / MIB for key in ("estimate", "state", "peak")]
        cells = " | ".join(f"{size:,.0f} MiB" for size in sizes)
        print(f"| {name} | {cells} | {sizes[2] / sizes[0]:.2f} |", flush=True)


def measure(recipe: str, sets: list[str]) -> dict[str, int]:
    """Returns the estimated memory of a run and its peak, in bytes."""
    from rlcli.assembly import out_of_memory
    from rlcli.runs import thread_layout
    from rlcli.runs.creation import create_run

    thread_layout.apply_for_recipe(recipe, set=sets)
    from rlcli.assembly import build
    from rlcli.recipe import load_recipe
    from rlcli.training.experiment.experiment import Experiment
    from rlcli.xla.temporaries import tree_bytes

    parsed = load_recipe(recipe, sets)
    experiment = Experiment(parsed, build(parsed))
    before = resident()
    shapes = experiment.program.check()
    experiment.program.begin()
    for _ in range(CHUNKS):
        experiment.advance(max(1, 1_000 // experiment.setup.steps_per_iteration))
    with tempfile.TemporaryDirectory() as folder:
        experiment.save_checkpoint(create_run("memory", run=Path(folder) / "run"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "estimate": out_of_memory.total(experiment.program.memory),
        "state": tree_bytes(shapes),
        "peak": peak - before,
    }


def resident() -> int:
    """Returns the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], sys.argv[2:])))
    else:
        main()
