"""Tested versions: the installed libraries compared with the pins of CI.

`constraints.txt`, from which CI installs, comes with rlcli and is the only list. A
package with pins for several versions of Python is tested with each of them.
"""

import importlib.metadata
import re
from collections.abc import Iterable
from typing import Any

from rlcli.registry.paths import shipped_path

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
