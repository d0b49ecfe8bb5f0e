"""Trains with rlcli and with other libraries, in the form that `pairs` compares.

Another library is a process of its own (`benchmarks.workers`), with the Python and the
threads that it needs. It waits while rlcli trains, and the reverse.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import pairs
from benchmarks.pairs import Advance, Loop
from benchmarks.workers.serve import READY
from rlcli.runs import thread_layout
from rlcli.xla import threads

ROOT = Path(__file__).parents[1]
TITLES = {
    "ppo": "PPO on CartPole",
    "ppo_evaluated": "PPO on CartPole, evaluated",
    "dqn": "DQN on CartPole",
    "sac": "SAC on Pendulum",
    "td3": "TD3 on Pendulum",
    "ppo_hopper": "PPO on Hopper",
    "sac_hopper": "SAC on Hopper",
    "td3_hopper": "TD3 on Hopper",
}
THREAD_VARIABLES = ("NPROC", "OMP_NUM_THREADS")  # of JAX and of PyTorch
TRIALS = 3  # calls that decide on a number of threads; the first one compiles


def apply_layout(data: Mapping[str, Any]) -> None:
    """Sets the threads that `rlcli train` would choose; before JAX is imported."""
    from rlcli.recipe import read_without_parts

    threads.apply_layout(thread_layout.choose_layout(read_without_parts(data, []).data))
    threads.disable_async_dispatch()


def start_training(data: Mapping[str, Any]) -> Advance:
    """rlcli, as in `rlcli train`: with its log and evaluations, without its files."""
    from rlcli.assembly import build
    from rlcli.recipe import load_recipe
    from rlcli.training.experiment.experiment import Experiment

    recipe = load_recipe(data, ["train.steps=100_000_000", "train.checkpoint=null"])
    experiment = Experiment(recipe, build(recipe))
    experiment.program.begin()

    def advance(steps: int) -> Any:
        end = experiment.step + steps
        while experiment.step < end:
            experiment.advance(
                (end - experiment.step) // experiment.setup.steps_per_iteration
            )
        return experiment.program.progress.iteration

    return advance


@contextmanager
def start_worker(
    python: str, library: str, work: str, steps: int, *arguments: str, threads: str = ""
) -> Iterator[Loop]:
    """Another library, in a process that trains `steps` per call.

    `threads` is their number, or "" for the default of the library.
    """
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in (*THREAD_VARIABLES, "XLA_FLAGS")
    }
    variables["PYTHONPATH"] = str(ROOT)
    if threads:
        variables |= dict.fromkeys(THREAD_VARIABLES, threads)
    module = f"benchmarks.workers.{library}"
    process = subprocess.Popen(
        [python, "-P", "-W", "ignore", "-m", module, work, str(steps), *arguments],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin
    assert stdout

    def wait() -> None:
        """Waits until the worker is ready; libraries may print lines of their own."""
        if not any(line.rstrip("\n") == READY for line in iter(stdout.readline, "")):
            raise RuntimeError(f"`{module}` ended with exit code {process.wait()}")

    def advance(_: int) -> None:
        stdin.write("\n")
        stdin.flush()
        wait()

    with process:  # closes its stdin at the end, after which it exits
        wait()
        yield Loop(advance, steps)


def fastest_threads(start: Callable[[str], AbstractContextManager[Loop]]) -> str:
    """Returns "1" or "" (all cores), whichever is faster for the workers of `start`."""
    seconds = {}
    for number in ("1", ""):
        with start(number) as loop:
            seconds[number] = min(pairs.measure(loop) for _ in range(TRIALS))
    return min(seconds, key=seconds.__getitem__)
