"""Machine: the memory that this process can still allocate."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rlcli.xla.shared_context import share_context

_KIB = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Available(NamedTuple):
    """Memory that this process can still allocate."""

    size: int  # bytes
    source: str  # the name of the limit, such as "physical memory"


def available_memory(root: Path = Path("/")) -> Available | None:
    """The smallest limit on the memory this process can still allocate, or None.

    Considers physical memory without swap, the limits of the process's cgroups
    (versions 1 and 2), and `ulimit`. None if all of them are unknown. `root` is the
    folder that holds `proc` and `sys`.
    """
    limits = [*_physical(root), *_cgroups(root), *_resource_limits(root)]
    return min(limits, default=None)


def format_size(size: float) -> str:
    """Formats a number of bytes: `2.1 KiB`, `18.6 GiB`."""
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
    if root == Path("/"):  # not Linux: the installed memory, used or not
        with contextlib.suppress(OSError, ValueError):
            size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            yield Available(size, "physical memory")


def _cgroups(root: Path) -> Iterator[Available]:
    """The limits of the cgroup of the process and of its ancestors."""
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
        # In a container the path may be the one on the host, which is not mounted. The
        # top folder is then the cgroup of the container.
        parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
        for depth in range(len(parts) + 1):
            yield from _cgroup(base.joinpath(*parts[:depth]), *names)


def _cgroup(
    folder: Path, limit: str, usage: str, reclaimable: str
) -> Iterator[Available]:
    """The memory left below the limit of one cgroup, if it has a limit."""
    maximum = _text(folder / limit).strip()
    used = _text(folder / usage).strip()
    if not (maximum.isdecimal() and used.isdecimal()):  # "max", or no such file
        return
    # The page cache counts as used, but the kernel reclaims it for allocations.
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == reclaimable:
            used = str(max(0, int(used) - int(value)))
    yield Available(max(0, int(maximum) - int(used)), "the memory limit of its cgroup")


def _resource_limits(root: Path) -> Iterator[Available]:
    """The rest of the address space and the data segment (`ulimit -v`, `-d`)."""
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


@share_context
@contextlib.contextmanager
def limit_allocations() -> Iterator[None]:
    """Limits this process to the memory that is available when the block starts.

    An allocation beyond the limit raises `MemoryError` immediately. Without it, Linux
    would grant the allocation, and kill the process when the memory is used.
    """
    available = available_memory()
    original = resource.getrlimit(resource.RLIMIT_DATA)
    pages = _text(Path("/proc/self/statm")).split()
    if available is None or len(pages) < 6:
        yield
        return
    maximum = int(pages[5]) * resource.getpagesize() + available.size
    soft, hard = original
    if soft == resource.RLIM_INFINITY or maximum < soft:
        resource.setrlimit(resource.RLIMIT_DATA, (maximum, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, original)
