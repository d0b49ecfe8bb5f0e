"""Threads: the size of XLA's pool, set before JAX is imported. Imports no JAX.

XLA sizes its thread pool once, when JAX is imported. `runs.thread_layout` chooses
the layout from a recipe; this module applies it to the environment variables.
"""

from __future__ import annotations

import glob
import os
import sys
from typing import Any, NamedTuple

DEVICES_FLAG = "--xla_force_host_platform_device_count"
WIDTH_FLAG = (
    "--xla_cpu_prefer_vector_width"  # 512 is 5-7 % faster where there is AVX-512
)


class Layout(NamedTuple):
    """How a run is spread over the machine."""

    threads: str  # "one" for each device, or "pool": one pool of XLA's
    devices: int  # that the host pretends to have; seeds are spread over them
    size: int = 0  # threads of the pool; 0: as XLA likes


def apply_layout(layout: Layout) -> bool:
    """Sets the environment's variables for a layout, before JAX is imported.

    What the user set in `NPROC` and `XLA_FLAGS` stays as it is. Where JAX is imported
    already nothing can change any more: says so by returning False.
    """
    if "jax" in sys.modules:
        return False
    os.environ.update(environment_variables(layout))
    return True


def current_layout(devices: int) -> dict[str, Any]:
    """The layout in force, for `run.json`: what `recorded` reads, and the variables.

    `devices` is over how many of them the seeds are spread.
    """
    return layout(devices)._asdict() | {
        "nproc": os.environ.get("NPROC", ""),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def layout(devices: int) -> Layout:
    """The layout in force, with the seeds spread over so many devices."""
    number = os.environ.get("NPROC", "")
    size = int(number) if number.isdecimal() else 0
    return Layout(
        "one" if is_single_threaded() else "pool", devices, size if size > 1 else 0
    )


def is_single_threaded() -> bool:
    """Whether XLA has one thread of the processor's for each device."""
    return os.environ.get("NPROC") == "1"


def disable_async_dispatch() -> None:
    """Has the caller's thread run what it dispatches, where XLA has but one.

    Another's turn would only have to be awaited, at every step of the loop on the host.
    JAX reads no environment variable for it, and no longer listens once it has computed
    anything. Imports JAX. With several devices it does nothing: their seeds go on at
    the same time.
    """
    import jax

    if is_single_threaded() and DEVICES_FLAG not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def environment_variables(layout: Layout) -> dict[str, str]:
    """The environment variables that make a layout, beside those the user set.

    None where a GPU or TPU does the work: these are about the processor, and the pool
    is what compiles for the accelerator.
    """
    if has_accelerator():
        return {}
    environment: dict[str, str] = {}
    threads = 1 if layout.threads == "one" else layout.size
    if threads and "NPROC" not in os.environ:
        environment["NPROC"] = str(threads)
    flags_wanted = {DEVICES_FLAG: layout.devices} if layout.devices > 1 else {}
    if _has_wide_vectors():
        flags_wanted[WIDTH_FLAG] = 512
    flags = os.environ.get("XLA_FLAGS", "")
    mine = [
        f"{flag}={value}" for flag, value in flags_wanted.items() if flag not in flags
    ]
    if mine:
        environment["XLA_FLAGS"] = " ".join(filter(None, [flags, *mine]))
    return environment


def has_accelerator() -> bool:
    """Whether JAX will run on something else than the processor."""
    import importlib.metadata  # here: they take a tenth of the time of `rlcli --help`
    import importlib.util

    platforms = os.environ.get("JAX_PLATFORMS") or os.environ.get("JAX_PLATFORM_NAME")
    if platforms:
        return platforms.split(",")[0].strip().lower() != "cpu"
    if importlib.util.find_spec("libtpu") and glob.glob("/dev/accel*"):
        return True
    present = any(map(glob.glob, ("/dev/nvidia[0-9]*", "/dev/dxg", "/dev/kfd")))
    # A graphics card is of no use to a JAX that was installed without its plug-in.
    return present and bool(importlib.metadata.entry_points(group="jax_plugins"))


def _has_wide_vectors() -> bool:
    """Whether this processor has AVX-512."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return "avx512f" in file.read()
    except OSError:  # not Linux
        return False
