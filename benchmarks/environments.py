"""Environment benchmark: steps per second of rlcli and another library, compiled.

    python -m benchmarks.environments [LIBRARY] [--python PYTHON] [--only NAME …]

Measures 1, 128 and 2 000 environments with one thread and random actions, drawn
beforehand and inside the loop; and XLA's costs of a step of 2 000: seconds to compile,
operations, bytes. `LIBRARY` is `gymnax`, the default, or `navix`, for MiniGrid. Each
environment runs in rlcli and then in the library, in persistent processes, so that a
pair is measured within a minute. `PYTHON` is the interpreter of a virtual environment
with the library and rlcli's version of JAX; by default one is created in a temporary
folder, with pip. CartPole is also measured in Gymnasium's NumPy vector.
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
from typing import Any, NamedTuple

from rlcli.xla import threads

NUMBERS = (1, 128, 2000)
MODES = ("actions drawn beforehand", "actions drawn inside")


class Peer(NamedTuple):
    """A library, and its names of rlcli's environments."""

    packages: tuple[str, ...]
    pairs: Mapping[str, str]
    options: Mapping[str, Mapping[str, Any]] = {}  # of rlcli, for equal work


GYMNAX = {
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
# DoorKey starts at a random place in MiniGrid; in navix where its name says so.
NAVIX = {
    f"MiniGrid-{name}-v0": f"Navix-{name.replace('DoorKey', 'DoorKey-Random')}-v0"
    for name in (
        *("Empty-5x5", "Empty-8x8", "Empty-16x16", "Empty-Random-6x6"),
        *("DoorKey-5x5", "DoorKey-8x8", "DoorKey-16x16"),
        *("KeyCorridorS3R1", "KeyCorridorS3R3", "KeyCorridorS6R3"),
    )
}
PEERS = {
    # gymnax imports six but does not declare it. Its DeepSea has size 8.
    "gymnax": Peer(("gymnax==1.0.1", "six"), GYMNAX, {"bsuite/DeepSea": {"size": 8}}),
    # `navix.make` ends episodes after 100 steps.
    "navix": Peer(("navix==0.7.4",), NAVIX, {n: {"time_limit": 100} for n in NAVIX}),
}


class Library:
    """A process that steps the environments of one library and measures them."""

    def __init__(self, name: str, python: str = sys.executable) -> None:
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.stepping", name, *map(str, NUMBERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )

    def measure(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the measurements of `benchmarks.stepping`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([name, options]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(
                f"`{name}` could not be measured: see the error of its process above"
            )
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def interpreter(path: str | None, packages: Sequence[str]) -> Iterator[str]:
    """Yields the given Python, or one of a temporary environment with the packages."""
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        jax = [f"{n}=={importlib.metadata.version(n)}" for n in ("jax", "jaxlib")]
        packages = [*packages, *jax]
        print(f"installing {', '.join(packages)} in {folder}", file=sys.stderr)
        process = subprocess.run([python, "-m", "pip", "install", "-q", *packages])
        if process.returncode:
            sys.exit("pip failed: create a virtual environment, and pass `--python`")
        yield python


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def speeds(results: dict[str, tuple[dict, dict]], library: str, mode: int) -> str:
    """Formats speeds and their ratio for each number, with the geometric mean."""
    head, rows = ["environment"], {name: [name] for name in results}
    means = ["geometric mean"]
    for index, number in enumerate(NUMBERS):
        head += [f"{number:,}".replace(",", " "), library, "×"]
        ratios = []
        for name, pair in results.items():
            rlcli_speed, other_speed = (r["speed"][index][mode] for r in pair)
            ratios.append(rlcli_speed / other_speed)
            rows[name] += [
                *map(millions, (rlcli_speed, other_speed)),
                f"{ratios[-1]:.1f}",
            ]
        means += ["", "", f"{statistics.geometric_mean(ratios):.1f}"]
    return table(head, [*rows.values(), means])


def costs(results: dict[str, tuple[dict, dict]], library: str) -> str:
    """Formats XLA's costs of one step of the largest number."""
    head = ["environment"]
    for column in ("compile, s", "operations, million", "bytes, million"):
        head += [column, library]
    rows = []
    for name, pair in results.items():
        row = [name]
        for key, unit in (("compile", 1.0), ("flops", 1e6), ("bytes", 1e6)):
            row += [f"{result[key] / unit:.2f}" for result in pair]
        rows.append(row)
    return table(head, rows)


def millions(speed: float) -> str:
    """Formats steps per second in millions, with three digits."""
    return f"{speed / 1e6:.3g}" if speed < 1e9 else f"{speed / 1e6:.0f}"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", nargs="?", choices=PEERS, default="gymnax")
    parser.add_argument("--python", metavar="PYTHON", help="a Python with the library")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    arguments = parser.parse_args()
    library, peer = arguments.library, PEERS[arguments.library]
    names = arguments.only or list(peer.pairs)
    if unknown := sorted(set(names) - set(peer.pairs)):
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(peer.pairs)}")
    threads.apply_layout(threads.Layout("one", 1))
    results = {}
    with interpreter(arguments.python, peer.packages) as python:
        rlcli, other = Library("rlcli"), Library(library, python)
        for name in names:
            rlcli_result = rlcli.measure(name, peer.options.get(name, {}))
            results[name] = rlcli_result, other.measure(peer.pairs[name], {})
            print(name, *results[name], file=sys.stderr, flush=True)
        rlcli.close()
        other.close()
    for mode, title in enumerate(MODES):
        text = speeds(results, library, mode)
        print(f"\nMillions of steps per second, {title}:\n\n{text}")
    print(f"\nOne step of {NUMBERS[-1]}:\n\n{costs(results, library)}")
    if "CartPole-v1" in results:
        numpy = Library("gymnasium")
        rates = [rate for rate, _ in numpy.measure("CartPole-v1", {})["speed"]]
        numpy.close()
        print(f"\nGymnasium's CartPole: {', '.join(map(millions, rates))} million")


if __name__ == "__main__":
    main()
