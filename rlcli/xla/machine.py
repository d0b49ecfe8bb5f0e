"""Machine: how much memory this process can still allocate. Imports nothing of ours."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_KIB = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Available(NamedTuple):
    """Memory that this process can still allocate."""

    size: int  # bytes
    source: str  # what sets this limit, such as "physical memory"


def available_memory(root: Path = Path("/")) -> Available | None:
    """The tightest limit on what this process can still allocate; None if unknown.

    Physical memory without swap, the limits of its cgroups (versions 1 and 2), and
    `ulimit`. `root` is the folder that holds `proc` and `sys`.
    """
    limits = [*_physical(root), *_cgroups(root), *_resource_limits(root)]
    return min(limits, default=None)


def format_size(size: float) -> str:
    """Bytes for people: `2.1 KiB`, `18.6 GiB`."""
    for unit in _UNITS:
        if size < 1_023.5 or unit == _UNITS[-1]:
            break
        size /= 1_024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"


def _physical(root: Path) -> Iterator[Available]:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield Available(int(line.split()[1]) * _KIB, "physical memory")
            return
    if root == Path("/"):  # not Linux: all that is installed, whoever uses it
        with contextlib.suppress(OSError, ValueError):
            size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            yield Available(size, "physical memory")


def _cgroups(root: Path) -> Iterator[Available]:
    """The limits of the process's cgroup and of all that contain it."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base = root / "sys/fs/cgroup"
            names = ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            names = (*names, "total_inactive_file")
        else:
            continue
        # A container may see the path on its host, which is not mounted here: then the
        # folder at the top is its own.
        parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
        for depth in range(len(parts) + 1):
            yield from _cgroup(base.joinpath(*parts[:depth]), *names)


def _cgroup(
    folder: Path, limit: str, usage: str, reclaimable: str
) -> Iterator[Available]:
    """What is left below the limit of one cgroup, if it has one."""
    most = _text(folder / limit).strip()
    used = _text(folder / usage).strip()
    if not (most.isdecimal() and used.isdecimal()):  # "max", or no such file
        return
    # Cached files count as used, and give way to whatever is allocated.
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == reclaimable:
            used = str(max(0, int(used) - int(value)))
    yield Available(max(0, int(most) - int(used)), "the memory limit of its cgroup")


def _resource_limits(root: Path) -> Iterator[Available]:
    """What is left of the address space and of the data segment (`ulimit -v`, `-d`)."""
    pages = _text(root / "proc/self/statm").split()
    page = resource.getpagesize()
    for name, limit, column in (
        ("`ulimit -v`", resource.RLIMIT_AS, 0),
        ("`ulimit -d`", resource.RLIMIT_DATA, 5),
    ):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY and len(pages) > column:
            yield Available(max(0, soft - int(pages[column]) * page), name)


def _text(path: Path) -> str:
    """The text of a file; "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@contextlib.contextmanager
def limit_allocations() -> Iterator[None]:
    """Limits this process to the memory that is available when the block begins.

    An allocation beyond it is a `MemoryError` at once, where Linux would grant it and
    kill the process once it is used.
    """
    available = available_memory()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    pages = _text(Path("/proc/self/statm")).split()
    if available is None or len(pages) < 6:
        yield
        return
    most = int(pages[5]) * resource.getpagesize() + available.size
    soft, hard = before
    if soft == resource.RLIM_INFINITY or most < soft:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
