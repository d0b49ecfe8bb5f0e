"""Threads: the size of XLA's thread pool. Does not import JAX.

XLA reads the environment variables of its threads and devices when JAX uses a device
for the first time; importing JAX does not matter. `runs.thread_layout` chooses the
layout from a recipe, and this module sets the variables for it.
"""

import contextlib
import glob
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.xla.flags import is_known_flag, require_known_flags
from rlcli.xla.shared_context import share_context

DEVICES_FLAG = "--xla_force_host_platform_device_count"
_MOST_PER_CORE = 8  # devices, or threads of the pool
WIDTH_FLAG = "--xla_cpu_prefer_vector_width"  # 512 is 5-7 % faster with AVX-512


class Layout(NamedTuple):
    """The threads and devices of a run."""

    threads: str  # "one": one thread per device; "pool": one pool for all devices
    devices: int  # host devices; the seeds are sharded over them
    size: int = 0  # threads of the pool; 0: the default of XLA


def apply_layout(layout: Layout) -> bool:
    """Sets the environment variables of a layout, before JAX uses a device.

    Does not override values that the user has set in `NPROC` and `XLA_FLAGS`. Returns
    False, without any effect, if JAX has already used one. Raises an `RlcliError` if
    XLA would end the process for the user's `XLA_FLAGS`.
    """
    if has_used_devices():
        return False
    require_known_flags()
    os.environ.update(environment_variables(layout))
    return True


def has_used_devices() -> bool:
    """Whether JAX has used a device, after which its threads and devices are fixed."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_initialized = getattr(bridge, "backends_are_initialized", None)
    return is_initialized() if is_initialized else "jax" in sys.modules


def variables_before_start(devices: int) -> str:
    """What to write before `python` so that it has one thread on each of N devices."""
    return f"NPROC=1 XLA_FLAGS={DEVICES_FLAG}={devices}"


def current_layout(devices: int) -> dict[str, Any]:
    """The current layout and the environment variables, for `run.json`.

    `devices` is the number of devices that the seeds are sharded over.
    """
    return layout(devices)._asdict() | {
        "nproc": os.environ.get("NPROC", ""),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def layout(devices: int) -> Layout:
    """The current layout, with the seeds sharded over `devices` devices."""
    number = os.environ.get("NPROC", "")
    size = int(number) if number.isdecimal() else 0
    return Layout(
        "one" if is_single_threaded() else "pool", devices, size if size > 1 else 0
    )


def usable_cores() -> int:
    """The number of cores that this process may use: a container may grant fewer."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
    except (OSError, ValueError):  # no cgroup of version 2
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def most_threads() -> int:
    """The most devices or threads that a file may ask for on this machine."""
    return _MOST_PER_CORE * usable_cores()


def bound_layout(layout: Layout) -> Layout:
    """Limits a layout to this machine: a recipe or `run.json` may name any number.

    A run of a larger machine keeps its devices, up to eight for each core.
    """
    most = most_threads()
    return Layout(layout.threads, min(layout.devices, most), min(layout.size, most))


def fewest_devices(seeds: int, devices: int) -> int:
    """The smallest number of devices that is not slower than all `devices`.

    The device with the most seeds determines the time. With 5 seeds this device has 2
    seeds on 4 devices and also on 3, so 3 devices suffice.
    """
    largest_share = -(-seeds // min(devices, seeds))
    return -(-seeds // largest_share)


def is_single_threaded() -> bool:
    """Whether XLA has one CPU thread per device."""
    return os.environ.get("NPROC") == "1"


def disable_async_dispatch() -> None:
    """Makes the calling thread execute its dispatches, if XLA has a single thread.

    Otherwise the host loop would wait for another thread at every step. JAX has no
    environment variable for this setting, and ignores it after the first computation.
    Imports JAX. Has no effect with several devices: their seeds run in parallel.
    """
    import jax

    if is_single_threaded() and DEVICES_FLAG not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def environment_variables(layout: Layout) -> dict[str, str]:
    """The environment variables for a layout, except those that the user has set.

    Empty with a GPU or TPU: the variables concern the CPU, whose thread pool then
    compiles the programs of the accelerator.
    """
    if has_accelerator():
        return {}
    environment: dict[str, str] = {}
    threads = 1 if layout.threads == "one" else layout.size
    if threads and "NPROC" not in os.environ:
        environment["NPROC"] = str(threads)
    layout_flags = {DEVICES_FLAG: layout.devices} if layout.devices > 1 else {}
    if _has_wide_vectors():
        layout_flags[WIDTH_FLAG] = 512
    flags = os.environ.get("XLA_FLAGS", "")
    new_flags = [
        f"{flag}={value}"
        for flag, value in layout_flags.items()
        if flag not in flags and is_known_flag(flag)
    ]
    if new_flags:
        environment["XLA_FLAGS"] = " ".join(filter(None, [flags, *new_flags]))
    return environment


def has_accelerator() -> bool:
    """Whether JAX will run on an accelerator instead of the CPU."""
    import importlib.metadata  # here: takes a tenth of the time of `rlcli --help`
    import importlib.util

    platforms = os.environ.get("JAX_PLATFORMS") or os.environ.get("JAX_PLATFORM_NAME")
    if platforms:
        return platforms.split(",")[0].strip().lower() != "cpu"
    if importlib.util.find_spec("libtpu") and glob.glob("/dev/accel*"):
        return True
    present = any(map(glob.glob, ("/dev/nvidia[0-9]*", "/dev/dxg", "/dev/kfd")))
    # JAX uses a GPU only if its plug-in is installed.
    return present and bool(importlib.metadata.entry_points(group="jax_plugins"))


def _has_wide_vectors() -> bool:
    """Whether this processor has AVX-512."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return "avx512f" in file.read()
    except OSError:  # not Linux
        return False


_TASKS = Path("/proc/self/task")
_CORE_FIELD = 36  # index of the field `processor` of `stat`, after the name


@share_context
@contextlib.contextmanager
def pin_threads() -> Iterator[None]:
    """Pins all threads to the core of the current thread; Linux only, else no effect.

    Used for less than a second at a time. In between the system may choose another
    core, so that several processes do not share one.
    """
    if not _TASKS.is_dir() or not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed_cores = os.sched_getaffinity(0)
    _set_affinity({_current_core()})
    try:
        yield
    finally:
        _set_affinity(allowed_cores)


def _current_core() -> int:
    """The core that this thread runs on."""
    fields = Path("/proc/thread-self/stat").read_text(encoding="utf-8")
    return int(fields.rpartition(")")[2].split()[_CORE_FIELD])


def _set_affinity(cores: set[int]) -> None:
    """Restricts all threads of this process to the given cores."""
    for task in os.listdir(_TASKS):
        with contextlib.suppress(
            OSError
        ):  # the thread has ended, or permission is denied
            os.sched_setaffinity(int(task), cores)
