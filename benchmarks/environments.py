"""Steps per second of our environments beside gymnax's, at random, compiled.

    python -m benchmarks.environments [--gymnax PYTHON] [--only NAME …]

1, 128 and 2 000 environments with one thread, actions drawn beforehand and inside; and
what XLA says of a step of 2 000: seconds to compile it, operations, bytes. Each
environment is played by us and then by gymnax 1.0.1, in processes that stay, so that a
pair is measured within a minute. `PYTHON` is the interpreter of a virtual environment
that has gymnax and our version of JAX; without it one is made in a temporary folder,
with pip. Gymnasium's own vector in NumPy plays CartPole as well.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.xla import threads

NUMBERS = (1, 128, 2000)
HOW = ("actions drawn beforehand", "actions drawn inside")
GYMNAX = "1.0.1"

OPTIONS = {"bsuite/DeepSea": {"size": 8}}  # what gymnax has by itself, for equal work
PAIRS = {
    "CartPole-v1": "CartPole-v1",
    "Acrobot-v1": "Acrobot-v1",
    "MountainCar-v0": "MountainCar-v0",
    "MountainCarContinuous-v0": "MountainCarContinuous-v0",
    "Pendulum-v1": "Pendulum-v1",
    "FrozenLake-v1": "FrozenLake-misc",
    "MinAtar/Asterix-v1": "Asterix-MinAtar",
    "MinAtar/Breakout-v1": "Breakout-MinAtar",
    "MinAtar/Freeway-v1": "Freeway-MinAtar",
    "MinAtar/Seaquest-v1": "Seaquest-MinAtar",
    "MinAtar/SpaceInvaders-v1": "SpaceInvaders-MinAtar",
    "bsuite/Catch": "Catch-bsuite",
    "bsuite/DeepSea": "DeepSea-bsuite",
    "bsuite/DiscountingChain": "DiscountingChain-bsuite",
    "bsuite/MemoryChain": "MemoryChain-bsuite",
    "bsuite/SimpleBandit": "SimpleBandit-bsuite",
    "bsuite/UmbrellaChain": "UmbrellaChain-bsuite",
    "BernoulliBandit-v0": "BernoulliBandit-misc",
    "GaussianBandit-v0": "GaussianBandit-misc",
    "FourRooms-v0": "FourRooms-misc",
    "MetaMaze-v0": "MetaMaze-misc",
    "PointRobot-v0": "PointRobot-misc",
    "Pong-v0": "Pong-misc",
    "Reacher-v0": "Reacher-misc",
}


class Library:
    """A process that plays the environments of one library, and times them."""

    def __init__(self, name: str, python: str = sys.executable) -> None:
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.stepping", name, *map(str, NUMBERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )

    def measured(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """What `benchmarks.stepping` has to say of an environment."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([name, options]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"`{name}` could not be measured; its process says why above")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def interpreter(given: str | None) -> Iterator[str]:
    """A Python that has gymnax: the one that was named, or one made for the moment."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        # Six is what gymnax imports and does not ask for.
        wanted = [f"gymnax=={GYMNAX}", "six"] + [
            f"{name}=={importlib.metadata.version(name)}" for name in ("jax", "jaxlib")
        ]
        print(f"installing {', '.join(wanted)} in {folder}", file=sys.stderr)
        done = subprocess.run([python, "-m", "pip", "install", "-q", *wanted])
        if done.returncode:
            sys.exit("pip could not: make a virtual environment, and pass `--gymnax`")
        yield python


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def speeds(found: dict[str, tuple[dict, dict]], way: int) -> str:
    """Ours, gymnax's and their ratio, for each number; the geometric mean below."""
    head, rows = ["environment"], {name: [name] for name in found}
    means = ["geometric mean"]
    for index, number in enumerate(NUMBERS):
        head += [f"{number:,}".replace(",", " "), "gymnax", "×"]
        ratios = []
        for name, pair in found.items():
            ours, theirs = (each["speed"][index][way] for each in pair)
            ratios.append(ours / theirs)
            rows[name] += [*map(millions, (ours, theirs)), f"{ratios[-1]:.1f}"]
        means += ["", "", f"{statistics.geometric_mean(ratios):.1f}"]
    return table(head, [*rows.values(), means])


def costs(found: dict[str, tuple[dict, dict]]) -> str:
    """What the compiler says of one step of the largest number."""
    head = ["environment"]
    for what in ("compile, s", "operations, million", "bytes, million"):
        head += [what, "gymnax"]
    rows = []
    for name, pair in found.items():
        row = [name]
        for what, unit in (("compile", 1.0), ("flops", 1e6), ("bytes", 1e6)):
            row += [f"{each[what] / unit:.2f}" for each in pair]
        rows.append(row)
    return table(head, rows)


def millions(speed: float) -> str:
    """Steps per second, in millions, with three digits."""
    return f"{speed / 1e6:.3g}" if speed < 1e9 else f"{speed / 1e6:.0f}"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gymnax", metavar="PYTHON", help="a Python that has gymnax")
    parser.add_argument("--only", nargs="+", choices=PAIRS, metavar="NAME")
    chosen = parser.parse_args()
    threads.apply_layout(threads.Layout("one", 1))
    found = {}
    with interpreter(chosen.gymnax) as python:
        ours, theirs = Library("rlcli"), Library("gymnax", python)
        for name in chosen.only or PAIRS:
            mine = ours.measured(name, OPTIONS.get(name, {}))
            found[name] = mine, theirs.measured(PAIRS[name], {})
            print(name, *found[name], file=sys.stderr, flush=True)
        ours.close()
        theirs.close()
    for way, how in enumerate(HOW):
        print(f"\nMillions of steps per second, {how}:\n\n{speeds(found, way)}")
    print(f"\nOne step of {NUMBERS[-1]}:\n\n{costs(found)}")
    if "CartPole-v1" in found:
        numpy = Library("gymnasium")
        rates = [each for each, _ in numpy.measured("CartPole-v1", {})["speed"]]
        numpy.close()
        print(f"\nGymnasium's CartPole: {', '.join(map(millions, rates))} million")


if __name__ == "__main__":
    main()
