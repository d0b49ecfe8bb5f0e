"""Doctor: checks the installation and the machine.

`constraints.txt`, from which CI installs, comes with rlcli and is the only list of the
tested versions. A package with pins for several versions of Python is tested with each
of them.
"""

import glob
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import rlcli.monitor
from rlcli import registry
from rlcli.errors import RlcliError, check_platform
from rlcli.registry import libraries
from rlcli.registry.paths import shipped_path
from rlcli.registry.plugins import reason, source
from rlcli.runs import provenance
from rlcli.runs.files import check_writable
from rlcli.xla import compilation_cache, flags, threads

_PIN = re.compile(r"^([\w.-]+)==([\w.]+)", re.MULTILINE)


def read_pins() -> dict[str, list[str]]:
    """The versions that CI tests, from old to new, by the normalized package name."""
    tested: dict[str, list[str]] = {}
    text = shipped_path("constraints.txt").read_text(encoding="utf-8")
    for name, version in _PIN.findall(text):
        tested.setdefault(_normalize(name), []).append(version)
    return {name: sorted(versions, key=_release) for name, versions in tested.items()}


def untested_packages(names: Iterable[str]) -> list[dict[str, Any]]:
    """The installed packages of `names` that are older or newer than all tested ones.

    Each is `{"name", "installed", "tested", "is"}`: `tested` are the versions of CI,
    and `is` is `older` or `newer`. Packages that CI does not pin are left out.
    """
    tested = read_pins()
    found = []
    for name in names:
        versions = tested.get(_normalize(name))
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if versions and (age := _compare(installed, versions)):
            found.append(
                {"name": name, "installed": installed, "tested": versions, "is": age}
            )
    return found


def _compare(installed: str, tested: list[str]) -> str:
    """`older` or `newer` than all tested versions, or ""; by the release numbers."""
    release = _release(installed)
    if release < _release(tested[0]):
        return "older"
    return "newer" if release > _release(tested[-1]) else ""


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _release(version: str) -> list[int]:
    """The numbers of a release without zeros at the end: `1.2.0rc1` is [1, 2]."""
    numbers = re.match(r"\d+(?:\.\d+)*", version.rpartition("!")[2])
    return (
        [*map(int, re.sub(r"(\.0+)+$", "", numbers[0]).split("."))] if numbers else []
    )


_OLDEST_PYTHON = (3, 11)
_REINSTALL = (
    "install it again: `pip install --force-reinstall rlcli`, in a clone `-e .`"
)


def doctor() -> dict[str, Any]:
    """Checks the installation: versions, devices, extras, plug-ins, terminal, folders.

    Returns `{"ok", "problems": [{"message", "hint", "required"}], "rlcli", "python",
    "platform", "packages", "untested": [{"name", "installed", "tested", "is"}],
    "devices", "cores", "extras": [{"name", "purpose", "installed", "install"}],
    "plug_ins": [{"kind", "name", "source", "error"}], "terminal", "folders":
    [{"purpose", "path", "error"}]}`. `ok` is false if something is broken that every
    run requires. `untested` are packages that are `older` or `newer` than tested.
    """
    problems = _Problems()
    problems.test(check_platform, required=True)
    problems.test(_check_python, required=True)
    packages = _check_packages(problems)
    report = {
        "rlcli": provenance.versions()["rlcli"],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "untested": untested_packages([*packages, *_packages_of_extras()]),
        "devices": _check_devices(problems),
        "cores": {"machine": os.cpu_count(), "usable": threads.usable_cores()},
        "extras": _list_extras(),
        "plug_ins": _check_plug_ins(problems),
        "terminal": _describe_terminal(),
        "folders": _check_folders(problems),
    }
    return {"ok": problems.is_ok, "problems": problems.found, **report}


class _Problems:
    """The problems found so far."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    @property
    def is_ok(self) -> bool:
        return not any(problem["required"] for problem in self.found)

    def add(self, message: str, hint: str, *, required: bool = False) -> None:
        self.found.append({"message": message, "hint": hint, "required": required})

    def test(self, check: Callable[[], Any], *, required: bool = False) -> str:
        """Runs a check; returns the message of the error that it raises, or ""."""
        try:
            check()
        except RlcliError as error:
            message, hint = error.message, error.hint
        except Exception as error:  # noqa: BLE001 - without JAX, nothing can be loaded
            message, hint = reason(error), _REINSTALL
        else:
            return ""
        self.add(message, hint, required=required)
        return message


def _check_python() -> None:
    if sys.version_info < _OLDEST_PYTHON:
        oldest = ".".join(map(str, _OLDEST_PYTHON))
        raise RlcliError(
            f"rlcli needs Python {oldest} or newer, not {platform.python_version()}",
            "create a virtual environment with a newer Python",
        )


def _check_packages(problems: _Problems) -> dict[str, str | None]:
    """The versions of the required packages; None for a missing one."""
    try:
        entries = importlib.metadata.requires("rlcli") or []
    except importlib.metadata.PackageNotFoundError:  # run from its source
        entries = [name for name in provenance.DISTRIBUTIONS if name != "rlcli"]
    names = [
        re.split(r"[^\w.-]", entry)[0] for entry in entries if "extra ==" not in entry
    ]
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
            problems.add(f"package `{name}` is missing", _REINSTALL, required=True)
    return versions


def _check_devices(problems: _Problems) -> list[dict[str, Any]]:
    """The devices of JAX, after a computation on the first."""
    if problems.test(flags.require_known_flags, required=True):
        return []  # XLA would end this process
    try:
        jax = importlib.import_module("jax")
        devices = jax.local_devices()
        if int(jax.numpy.arange(4).sum()) != 6:
            problems.add("JAX computes wrong results", _REINSTALL, required=True)
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        problems.add(f"JAX does not work: {reason(error)}", _REINSTALL, required=True)
        return []
    kinds = Counter((device.platform, device.device_kind) for device in devices)
    if glob.glob("/dev/nvidia[0-9]*") and devices[0].platform == "cpu":
        problems.add(
            "this machine has an NVIDIA GPU, but JAX uses the CPU",
            libraries.install_command("cuda13"),
        )
    return [
        {"platform": name, "kind": kind, "count": count}
        for (name, kind), count in kinds.items()
    ]


def _list_extras() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "purpose": extra.purpose,
            "installed": not libraries.missing_modules(name),
            "install": libraries.install_command(name),
        }
        for name, extra in libraries.EXTRAS.items()
    ]


def _packages_of_extras() -> list[str]:
    """The installed packages that have the modules of extras, each once."""
    owners = importlib.metadata.packages_distributions()
    modules = [
        module for extra in libraries.EXTRAS.values() for module in extra.modules
    ]
    return [*dict.fromkeys(name for each in modules for name in owners.get(each, ()))]


def _check_plug_ins(problems: _Problems) -> list[dict[str, str]]:
    """The parts of installed plug-ins, with the error of each that is broken."""
    return [
        {
            "kind": kind,
            "name": name,
            "source": source(entry),
            "error": problems.test(lambda kind=kind, name=name: _load(kind, name)),
        }
        for kind in registry.KINDS
        for name, entry in registry.entry_points(kind).items()
    ]


def _load(kind: str, name: str) -> None:
    """Loads a plug-in; that of an adapter needs an id."""
    registry.find(kind, f"{name}ID" if name.endswith("/") else name)


def _describe_terminal() -> dict[str, Any]:
    size = shutil.get_terminal_size()
    return {
        "stdout": sys.stdout is not None and sys.stdout.isatty(),
        "stderr": sys.stderr is not None and sys.stderr.isatty(),
        "term": os.environ.get("TERM", ""),
        "columns": size.columns,
        "lines": size.lines,
        "panel": rlcli.monitor.can_show_panel(),
    }


def _check_folders(problems: _Problems) -> list[dict[str, str]]:
    """The folders that a run writes to."""
    folders = {
        "runs": (Path("runs").absolute(), "choose another folder with `--runs`"),
        "compiled programs": (
            compilation_cache.cache_folder(),
            "set `JAX_COMPILATION_CACHE_DIR`: without it every run compiles again",
        ),
    }
    return [
        {
            "purpose": purpose,
            "path": str(path),
            "error": problems.test(
                lambda path=path, hint=hint: check_writable(path, hint)
            ),
        }
        for purpose, (path, hint) in folders.items()
    ]
