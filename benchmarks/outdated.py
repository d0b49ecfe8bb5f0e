"""Outdated: each bound beside the newest version, which is installed and tried.

    python -m benchmarks.outdated [--python PYTHON] [NAME …]

NAME is `core` or an extra, by default all. Each is installed with rlcli into an
environment of its own, where commands of rlcli then run; the environments share one
with the newest versions of the core. A package whose newest version is above its bound
gets an environment with that version. pip asks the package index that it is configured
with. Choose the newest Python: the newest JAX needs it. The exit code is 1 if something
fails within the bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from rlcli.registry.libraries import EXTRAS

ROOT = Path(__file__).parents[1]
TIMEOUT = 1_200  # seconds of a command
TRAIN = "train dqn_cartpole --smoke --name smoke --quiet"
RUN = "runs/dqn_cartpole/smoke"
SPACE = "tracer.gamma: {uniform: [0.9, 0.99]}\n"
SWEEP = (
    "sweep dqn_cartpole --space space.yaml --trials 1 --seeds 1 --confirm 0 --quiet "
    "--set train.steps=2_048 --set train.evaluate.every=512"
)
SMOKE: dict[str, tuple[str, ...]] = {  # arguments of rlcli, in an empty folder
    "core": (TRAIN, f"resume {RUN}", f"eval {RUN}", f"render {RUN}", "doctor"),
    "gymnasium": (
        "train dqn_gymnasium_cartpole --smoke --name smoke --quiet",
        "render runs/dqn_gymnasium_cartpole/smoke",
    ),
    "plot": (TRAIN, f"plot {RUN} --output curve.png"),
    "report": (TRAIN, f"report {RUN} --episodes 0 --output report.html"),
    "board": (TRAIN, "board --help"),  # it serves until it is stopped
    "mp4": (TRAIN, f"render {RUN} --output film.mp4"),
    "minari": (),  # its data sets are downloads
    "tensorboard": (f"{TRAIN} --set train.trackers=[tensorboard]",),
    "wandb": (f"{TRAIN} --set 'train.trackers=[{{name: wandb, mode: offline}}]'",),
    "mlflow": (f"{TRAIN} --set train.trackers=[mlflow]",),
    "sweep": (SWEEP,),
    "ray": (f"{SWEEP} --engine ray",),
    "storage": (),  # needs a store
    "onnx": (TRAIN, f"export {RUN} --format onnx"),
    "stablehlo": (TRAIN, f"export {RUN} --format stablehlo"),
} | {
    extra: (f"train {recipe} --smoke --quiet",)
    for extra, recipe in {
        "atari": "ppo_atari_pong",
        "mujoco": "ppo_gymnasium_hopper",
        "robotics": "her_gymnasium_pointmaze",
        "minigrid": "ppo_gymnasium_babyai",
        "box2d": "ppo_gymnasium_lunar_lander",
        "envpool": "ppo_envpool_cartpole",
        "gymnax": "ppo_gymnax_catch",
        "pgx": "ppo_pgx_2048",
        "pettingzoo": "ippo_pettingzoo_spread",
        "playground": "ppo_playground_cartpole_balance",
        "brax": "ppo_brax_ant",
        "jaxmarl": "ippo_jaxmarl_spread",
        "craftax": "ppo_craftax_classic",
        "jumanji": "ppo_jumanji_snake",
        "navix": "ppo_navix_empty",
        "xminigrid": "ppo_xminigrid_empty",
        "evolution": "open_es_cartpole",
        "muzero": "muzero_cartpole",
    }.items()
}
# Extras that an extra's commands need beside it.
NEEDS = {"ray": ",sweep"}
# The versions of the packages that are named, or that own the modules that are named.
VERSIONS = """
import importlib.metadata as m, json, sys
owners = m.packages_distributions()
names = [n for word in sys.argv[1:] for n in owners.get(word, [word])]
print(json.dumps({n: m.version(n) for n in dict.fromkeys(names)}))
"""


class Row(NamedTuple):
    """A package of the core or of an extra."""

    of: str
    package: str
    bound: str  # "" for what another library brings
    installed: str  # within the bounds
    newest: str
    smoke: str  # the first error, or ""
    beyond: str | None  # the same with the newest version; None if it is in the bounds

    @property
    def conclusion(self) -> str:
        """What to do, or that nothing is to be done."""
        if self.smoke:
            return f"FAILS: {self.smoke}"
        if self.beyond is None:
            return "passes"
        if self.beyond:
            return f"passes; the newest fails: {self.beyond}"
        return "passes, also with the newest: raise the bound"


class Environment:
    """A virtual environment, which may see the packages of another one."""

    def __init__(self, folder: Path, python: str, base: Environment | None) -> None:
        subprocess.run([python, "-m", "venv", folder], check=True)
        self.python = folder / "bin" / "python"
        if base:
            program = "import sysconfig; print(sysconfig.get_path('purelib'))"
            own, shared = (
                subprocess.check_output([each.python, "-c", program], text=True).strip()
                for each in (self, base)
            )
            (Path(own) / "base.pth").write_text(f"{shared}\n", encoding="utf-8")

    def conflict(self, package: str) -> str:
        """What another package than rlcli says against the version of `package`."""
        command = [self.python, "-m", "pip", "check"]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = process.stdout.splitlines()
        named = [line for line in lines if f"you have {package} " in line]
        return next((line for line in named if not line.startswith("rlcli ")), "")

    def run(self, *arguments: str, folder: Path | None = None) -> str:
        """Runs Python; returns the last line of its errors if it fails, else ""."""
        try:
            process = subprocess.run(
                [self.python, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"longer than {TIMEOUT} s"
        return first_error(process.stderr) if process.returncode else ""

    def install(self, *requirements: str) -> str:
        """Installs packages; returns the error, or ""."""
        return self.run("-m", "pip", "install", "--quiet", *requirements)

    def versions(self, words: Sequence[str]) -> dict[str, str]:
        """The versions of packages, by name or by one of their modules."""
        command = [str(self.python), "-c", VERSIONS, *words]
        return json.loads(subprocess.check_output(command, text=True))

    def newest(self, package: str) -> str:
        """The newest version that pip finds for this Python."""
        command = [str(self.python), "-m", "pip", "index", "versions", package]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.match(r"\S+ \((\S+)\)", process.stdout)
        return found[1] if found else "unknown"

    def smoke(self, name: str) -> str:
        """Imports the modules of an extra and runs its commands; returns the error."""
        modules = EXTRAS[name].modules if name in EXTRAS else ("rlcli",)
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            (folder / "space.yaml").write_text(SPACE, encoding="utf-8")
            commands = [["-c", f"import {', '.join(modules)}"]]
            commands += [["-m", "rlcli", *shlex.split(line)] for line in SMOKE[name]]
            errors = (self.run(*command, folder=folder) for command in commands)
            return next(filter(None, errors), "")


def first_error(text: str) -> str:
    """The line of a command's stderr that says why it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?i)(\w+ ?)*error\b", line)]
    return (errors or lines or ["no message"])[-1 if not errors else 0][:200]


def requirements_of(name: str) -> dict[str, SpecifierSet]:
    """The packages of the core or of an extra, with their bounds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    entries = (
        project["dependencies"]
        if name == "core"
        else project["optional-dependencies"][name]
    )
    requirements = map(Requirement, entries)
    return {
        str(canonicalize_name(each.name)): each.specifier
        for each in requirements
        if each.specifier or name == "core"
    }


def check(name: str, base: Environment, python: str, folder: Path) -> list[Row]:
    """Installs and tries the core or an extra, and each package above its bound."""
    bounds = requirements_of(name)
    modules = () if name == "core" else EXTRAS[name].modules
    environment, error = base, ""
    if name != "core":
        environment = Environment(folder / name, python, base)
        error = environment.install(f"{ROOT}[{name}{NEEDS.get(name, '')}]")
    installed = {} if error else environment.versions([*bounds, *modules])
    installed = {str(canonicalize_name(key)): value for key, value in installed.items()}
    error = error or environment.smoke(name)
    rows = []
    for package in dict.fromkeys([*bounds, *installed]):
        newest = base.newest(package)
        bound = bounds.get(package, SpecifierSet())
        beyond = None
        if newest != "unknown" and newest not in bound:
            other = Environment(folder / f"{name}-{package}", python, base)
            beyond = try_newest(other, name, package, newest)
        row = Row(
            name,
            package,
            str(bound),
            installed.get(package, "none"),
            newest,
            error,
            beyond,
        )
        print(line(row), flush=True)
        rows.append(row)
    return rows


def try_newest(environment: Environment, name: str, package: str, newest: str) -> str:
    """Tries the core or an extra with a version above a bound; returns the error."""
    return (
        (
            environment.install(f"{ROOT}[{name}{NEEDS.get(name, '')}]")
            if name != "core"
            else ""
        )
        # On its own: together with rlcli, pip would refuse it for the bound.
        or environment.install(f"{package}=={newest}")
        or environment.conflict(package)
        or environment.smoke(name)
    )


def line(row: Row) -> str:
    """A line of the table."""
    cells = (row.of, row.package, row.bound, row.installed, row.newest, row.conclusion)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def main() -> int:
    """Prints the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outdated")
    parser.add_argument("names", nargs="*", help="core or extras; all by default")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    os.environ.pop("PYTHONPATH", None)  # of this process: each environment has its own
    if unknown := sorted({*options.names} - {*SMOKE}):
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(SMOKE)}")
    version = subprocess.check_output([options.python, "--version"], text=True).strip()
    print(f"{version}, {sysconfig.get_platform()}\n")
    print("| of | package | bound | installed | newest | smoke run |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="outdated-") as text:
        folder = Path(text)
        base = Environment(folder / "base", options.python, None)
        if error := base.install(str(ROOT)):
            print(error, file=sys.stderr)
            return 1
        rows = [
            row
            for name in options.names or SMOKE
            for row in check(name, base, options.python, folder)
        ]
    return int(any(row.smoke for row in rows))


if __name__ == "__main__":
    sys.exit(main())
