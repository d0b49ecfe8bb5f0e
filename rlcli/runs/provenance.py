"""Provenance: records versions, hardware and git state. Imports no JAX."""

import contextlib
import functools
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcli.quoting import join_shell, quote_shell
from rlcli.registry.paths import directory
from rlcli.xla import threads

DISTRIBUTIONS = (  # whose versions may change the results of a run
    *("rlcli", "jax", "jaxlib", "dm-haiku", "optax", "gymnasium", "numpy"),
)
DIFF_LIMIT = 100_000  # characters of `git diff` that are recorded
_NO_SETTINGS: Mapping[str, str] = {}


def collect_provenance() -> dict[str, Any]:
    """The provenance of this process for `run.json`; imports no recorded package."""
    return {
        "command": command_line(),
        "python": platform.python_version(),
        "versions": versions(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": {"machine": os.cpu_count(), "usable": threads.usable_cores()},
        "git": _git_state(),
    }


def command_line() -> str:
    """The command line of this process, quoted for a shell."""
    return join_shell(sys.argv)


def program() -> str:
    """How a shell runs this rlcli: `rlcli`, unless that is another one, or none."""
    started = Path(sys.argv[0])
    if started.name == "rlcli":
        found = shutil.which("rlcli")
        is_found = found is not None and Path(found).resolve() == started.resolve()
        return "rlcli" if is_found else quote_shell(sys.argv[0])
    if started.name == "__main__.py" and started.parent.name == "rlcli":
        python = Path(sys.executable)
        found = shutil.which(python.name)
        is_found = found is not None and Path(found) == python
        return f"{python.name if is_found else quote_shell(python)} -m rlcli"
    return "rlcli"


def versions() -> dict[str, str | None]:
    """The versions of the packages that may change the results of a run."""
    return {name: _version(name) for name in DISTRIBUTIONS}


@functools.cache
def _version(distribution: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


def _processor() -> str:
    """The name of the processor; Linux has it only in a file."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git_state() -> dict[str, Any] | None:
    """The commit and the diff of the git checkout in the working directory.

    None outside a checkout, before its first commit, or without git.
    """
    commit = _run_git("rev-parse", "HEAD")
    if not commit:
        return None
    # Runs no programs of the checkout's configuration: the checkout may be untrusted.
    settings = {"core.fsmonitor": "false"} | dict.fromkeys(_own_filters(), "")
    flags = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules")
    diff = _run_git("diff", *flags, "HEAD", settings=settings)
    cut = len(diff) > DIFF_LIMIT
    return {"commit": commit.strip(), "diff": diff[:DIFF_LIMIT], "diff_is_cut": cut}


def _own_filters() -> list[str]:
    """The filter settings of the checkout itself, without those of the user."""
    pattern = r"^filter\..*\.(clean|process|required)$"
    arguments = ("--show-scope", "--name-only", "-z", "--get-regexp", pattern)
    fields = _run_git("config", *arguments).split("\0")
    scopes = zip(fields[::2], fields[1::2], strict=False)
    return [name for scope, name in scopes if scope in ("local", "worktree")]


def _run_git(*arguments: str, settings: Mapping[str, str] = _NO_SETTINGS) -> str:
    """The first `DIFF_LIMIT` + 1 characters of git's output."""
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}  # read-only
    environment |= _configuration(settings)
    try:
        process = subprocess.Popen(
            ["git", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=directory() or None,
            encoding="utf-8",
            errors="replace",
        )
    except OSError:  # no git here
        return ""
    with process:
        text = process.stdout.read(DIFF_LIMIT + 1) if process.stdout else ""
        is_complete = len(text) <= DIFF_LIMIT
        if not is_complete:
            process.kill()
    return text if process.returncode == 0 or not is_complete else ""


def _configuration(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that add settings to git's configuration."""
    number = os.environ.get("GIT_CONFIG_COUNT", "")
    first = int(number) if number.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for index, (name, value) in enumerate(settings.items(), first):
        variables[f"GIT_CONFIG_KEY_{index}"] = name
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
    return variables
