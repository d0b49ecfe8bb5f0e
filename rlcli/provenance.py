"""Provenance: what a process runs on, and of what. Imports nothing of ours."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

DISTRIBUTIONS = (  # whose versions may change what a run comes to
    *("rlcli", "jax", "jaxlib", "dm-haiku", "optax", "rlax", "gymnasium", "numpy"),
)
DIFF_LIMIT = 100_000  # characters of `git diff` that a run keeps


def circumstances() -> dict[str, Any]:
    """What this process runs on, for `run.json`: nothing of it is imported for that."""
    return {
        "command": command(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in DISTRIBUTIONS},
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": {"machine": os.cpu_count(), "usable": _usable_cores()},
        "git": _git(),
    }


def command() -> str:
    """The command line of this process, as a shell takes it."""
    return shlex.join(sys.argv)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The name of the processor; Linux tells it in a file only."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _usable_cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):  # Linux: a container may grant fewer
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _git() -> dict[str, Any] | None:
    """The commit of the checkout that the process stands in, and what differs from it.

    None outside of a checkout, before its first commit, or without git.
    """
    commit = _git_says("rev-parse", "HEAD")
    if not commit:
        return None
    # No program that the user's configuration may name for showing differences.
    diff = _git_says("diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD")
    cut = len(diff) > DIFF_LIMIT
    return {"commit": commit.strip(), "diff": diff[:DIFF_LIMIT], "diff_is_cut": cut}


def _git_says(*arguments: str) -> str:
    """The beginning of what git writes: one character more than a run keeps."""
    quiet = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}  # looks, and changes nothing
    try:
        process = subprocess.Popen(
            ["git", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=quiet,
            encoding="utf-8",
            errors="replace",
        )
    except OSError:  # no git here
        return ""
    with process:
        text = process.stdout.read(DIFF_LIMIT + 1) if process.stdout else ""
        whole = len(text) <= DIFF_LIMIT
        if not whole:
            process.kill()
    return text if process.returncode == 0 or not whole else ""
