"""From the start of a process to the first row of metrics, and to the end.

    python -m benchmarks.first_result [RECIPE …]

Runs `rlcli train RECIPE` with an empty compilation cache and again with the programs in
it, and watches the run folder. Then a process for each tells where its time goes until
the first row: imports, tracing, lowering, compiling or reading from the cache, and the
rest: reading the recipe, building the parts, running.
"""

from __future__ import annotations

import collections
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

RECIPES = ("dqn_cartpole", "ppo_cartpole")
ROUNDS = 3
# The durations that JAX reports.
PARTS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile or read",
}


def process_variables(cache: str) -> dict[str, str]:
    """The environment variables of a process that reads and writes bytecode."""
    variables = os.environ | {"XDG_CACHE_HOME": cache}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def measure(recipe: str, cache: str) -> tuple[float, float]:
    """Seconds from the start of a run to its first row, and to its end."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "run", "metrics.jsonl")
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "rlcli", "train", recipe, "--run", rows.parent],
            env=process_variables(cache),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and not (rows.exists() and rows.stat().st_size):
            time.sleep(0.005)
        first = time.perf_counter() - start
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, process.args)
        return first, time.perf_counter() - start


def print_parts(recipe: str, start: float) -> None:
    """Trains until the first row, and prints the parts; `start`: of the process."""
    import rlcli
    from rlcli.runs import thread_layout

    thread_layout.apply_for_recipe(recipe)
    import jax

    import rlcli.training.experiment.experiment  # everything that training imports

    durations: dict[str, float] = collections.defaultdict(float)
    durations["import"] = time.time() - start

    def add(event: str, seconds: float, **_: object) -> None:
        if event in PARTS:
            durations[PARTS[event]] += seconds

    jax.monitoring.register_event_duration_secs_listener(add)
    with tempfile.TemporaryDirectory() as folder:
        chunks = rlcli.chunks(recipe, run=Path(folder, "run"), quiet=True)
        while not next(chunks).rows:
            pass
        total = time.time() - start
        durations["rest"] = total - sum(durations.values())
        print(f"  first row {total:.2f} s:", format_parts(durations), flush=True)
        chunks.close()


def format_parts(durations: Mapping[str, float]) -> str:
    """The parts in one line."""
    return ", ".join(f"{name} {seconds:.2f}" for name, seconds in durations.items())


def main(recipes: list[str]) -> None:
    """Prints the medians of whole commands, and the parts of one of each kind."""
    for recipe in recipes:
        times: dict[str, list[tuple[float, float]]] = {"empty": [], "full": []}
        with tempfile.TemporaryDirectory() as cache:
            measure(recipe, cache)  # writes the bytecode
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as cache:
                for kind in times:
                    times[kind].append(measure(recipe, cache))
        with tempfile.TemporaryDirectory() as cache:
            for kind, rounds in times.items():
                first, end = (
                    statistics.median(column) for column in zip(*rounds, strict=True)
                )
                print(
                    f"{recipe}, cache {kind}: first row {first:.1f} s, end {end:.1f} s",
                    flush=True,
                )
                subprocess.run(
                    [
                        sys.executable,
                        "-m",
                        "benchmarks.first_result",
                        "--parts",
                        recipe,
                    ],
                    env=process_variables(cache),
                    check=True,
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--parts"]:
        print_parts(sys.argv[2], time.time() - time.process_time())
    else:
        main(sys.argv[1:] or [*RECIPES])
