"""How speed, memory and checkpoints grow: environments, seeds, devices, trials.

    python -m benchmarks.scaling [environments seeds images devices replay trials]

Prints the tables of docs/scaling.md. Each row of a run is a separate process, which
compiles, trains for three seconds at least, and writes a checkpoint. Memory is the peak
of the process minus what it had before the recipe was read. `trials` needs the extra
`sweep`: it measures what the driver of a sweep does for a trial, without training.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

MIB = 2**20
SECONDS = 3.0  # of training that is measured, at least
NO_END = (  # chunks end when this module says so
    "train.steps=1_000_000_000",
    "train.evaluate.every=null",
    "train.checkpoint.every=1_000_000_000",
)
SWEEPS = (100, 300, 1_000)  # trials that a sweep has already
NO_WARM_UP = "train.start=0"  # else the speed would be that of steps without updates
Row = tuple[str, str, Sequence[str], int]  # label, recipe, settings, seeds


def environments() -> list[Row]:
    """One agent with more and more environments."""
    return [
        (f"{n:,}", "ppo_cartpole", [f"environment.num_envs={n}"], 1)
        for n in (4, 64, 1_024, 16_384)
    ]


def seeds() -> list[Row]:
    """More and more agents in one program."""
    return [(f"{n:,}", "dqn_cartpole", [NO_WARM_UP], n) for n in (1, 8, 64, 256, 1_024)]


def images() -> list[Row]:
    """Convolutions: more environments, more agents, layers of 16 bits."""
    many = "environment.num_envs=1024"
    return [
        ("32", "ppo_breakout", [], 1),
        ("1,024", "ppo_breakout", [many], 1),
        ("1,024, 8 seeds", "ppo_breakout", [many], 8),
        ("the same, bfloat16", "ppo_breakout", [many, "train.precision=bfloat16"], 8),
    ]


def devices() -> list[Row]:
    """One agent on more and more virtual devices, all on the cores of this machine."""
    size = "environment.num_envs=1024"
    return [
        (f"{n}", "ppo_cartpole", [size, f"train.data_parallel={n}"], 1)
        for n in (1, 2, 4, 8)
    ]


def replay() -> list[Row]:
    """A larger and larger replay, which is a part of every checkpoint."""
    return [
        (f"{n:,}", "dqn_cartpole", [NO_WARM_UP, f"replay.capacity={n}"], 1)
        for n in (10_000, 100_000, 1_000_000, 10_000_000)
    ]


AXES: Mapping[str, Callable[[], list[Row]]] = {
    each.__name__: each for each in (environments, seeds, images, devices, replay)
}


def print_axis(name: str) -> None:
    """Runs each row of an axis in a process of its own."""
    print(f"\n| {name} | steps/s | compile s | memory MiB | checkpoint MiB | save s |")
    print("|---|---|---|---|---|---|")
    for label, recipe, sets, count in AXES[name]():
        program = [sys.executable, "-m", "benchmarks.scaling", "--measure", recipe]
        program += ["--seeds", str(count), *(f"--set={each}" for each in sets)]
        with tempfile.TemporaryDirectory() as cache:  # of programs, empty
            result = subprocess.run(
                program,
                env=os.environ | {"XDG_CACHE_HOME": cache},
                check=True,
                capture_output=True,
                text=True,
            )
        row = json.loads(result.stdout)
        cells = (
            *(label, f"{row['rate']:,.0f}", f"{row['compile']:.1f}"),
            *(f"{row['memory'] / MIB:,.0f}", f"{row['checkpoint'] / MIB:,.2f}"),
            f"{row['save']:.2f}",
        )
        print("|", " | ".join(cells), "|", flush=True)


def measure(recipe: str, sets: Sequence[str], count: int) -> dict[str, float]:
    """Speed, memory and checkpoint of a run; the rate counts the steps of all seeds."""
    import resource

    from benchmarks.memory import resident
    from rlcli.runs import thread_layout
    from rlcli.runs.creation import create_run

    sets = [*sets, *NO_END]
    thread_layout.apply_for_recipe(recipe, set=[*sets, f"train.seeds={count}"])
    from rlcli.assembly import build
    from rlcli.recipe import load_recipe
    from rlcli.training.experiment.experiment import Experiment

    parsed = load_recipe(recipe, [*sets, f"train.seeds={count}"])
    before = resident()
    begin = time.perf_counter()
    experiment = Experiment(parsed, build(parsed))
    experiment.program.check()
    experiment.program.begin()
    experiment.advance(1)
    compiled = time.perf_counter() - begin
    compiled -= experiment.advance(1).seconds
    done, elapsed = 0, 0.0
    while elapsed < SECONDS:
        report = experiment.advance(2 * done + 1)  # a chunk is limited by its metrics
        done += report.iterations
        elapsed += report.seconds
    with tempfile.TemporaryDirectory() as folder:
        run = create_run("scaling", run=Path(folder) / "run")
        begin = time.perf_counter()
        experiment.save_checkpoint(run)
        saved = time.perf_counter() - begin
        size = sum(each.stat().st_size for each in run.checkpoints.iterdir())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "rate": done * experiment.setup.steps_per_iteration * count / elapsed,
        "compile": compiled,
        "memory": peak - before,
        "checkpoint": size,
        "save": saved,
    }


def print_trials() -> None:
    """Prints what the driver of a sweep does for a trial with three evaluations."""
    from rlcli.studies.search.layout import Settings, Sweep, create_sweep
    from rlcli.studies.search.space import load_space
    from rlcli.studies.search.trials import Trials

    print(
        "\n| trials so far | random: ms per trial | tpe: ms per trial | journal MiB |"
    )
    print("|---|---|---|---|")
    space = load_space({"a": {"log_uniform": [1e-4, 1]}, "b": {"uniform": [0, 1]}})
    with tempfile.TemporaryDirectory() as folder:
        studies, sizes = {}, {}
        for sampler in ("random", "tpe"):
            settings = Settings(
                recipe="a",
                digest="",
                set=(),
                trials=SWEEPS[-1],
                seed=0,
                seeds=5,
                sampler=sampler,
                pruner="asha",
                objective="return",
                confirm=0,
                confirm_seeds=5,
                storage=None,
                study="a",
                ready=None,
                together=1,
            )
            place = Path(folder) / sampler
            sweep = Sweep(place, settings=settings, space=space)
            create_sweep(sweep)
            studies[sampler] = Trials(sweep)
            sizes[sampler] = sweep.journal
        done = 0
        for total in SWEEPS:
            cells = []
            for study in studies.values():
                for _ in range(done, total - 10):
                    _add_trial(study)
                begin = time.perf_counter()
                for _ in range(10):
                    _add_trial(study)
                cells.append(f"{(time.perf_counter() - begin) * 100:.0f}")
            size = sizes["random"].stat().st_size / MIB
            print("|", f"{total:,}", "|", *(f"{each} |" for each in cells), end=" ")
            print(f"{size:.1f} |", flush=True)
            done = total


def _add_trial(study: Any) -> None:
    """Begins and ends a trial."""
    trial = study.ask()
    for step in (1, 3, 9):
        study.report(trial.number, step, trial.values["a"] * step)
    study.end(trial.number, "complete", trial.values["a"])


def main() -> None:
    """Prints the tables of the axes that are named, by default of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("axes", nargs="*", default=[*AXES, "trials"])
    parser.add_argument("--measure", metavar="RECIPE", help=argparse.SUPPRESS)
    parser.add_argument("--set", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.set, options.seeds)))
        return
    for axis in options.axes:
        if axis == "trials":
            print_trials()
        else:
            print_axis(axis)


if __name__ == "__main__":
    main()
