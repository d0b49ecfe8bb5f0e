"""Threads: how many a run gets, decided before JAX is imported. Imports no JAX.

XLA sizes its thread pool once, when JAX is imported, so the choice is made from the
recipe's plain YAML: what is wrong with a recipe is said later, by its real loader.
"""

from __future__ import annotations

import glob
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rlcli.errors import RlcliError

# Multiply-adds of a network's layers over one batch, from which on several threads win:
# 64-64 with 32 rows (0.1 M) runs at half its speed in the pool, if unlucky; 64-64 with
# 2 048 rows (8 M) gains 15 %, 256-256 with 256 rows (17 M) gains 70 %.
WIDE = 8_000_000
# What counts where the recipe is silent: its defaults, by the size that matters here.
LAYERS = (64, 64)
BATCH_SIZE, UNROLL, MINIBATCHES, ENVIRONMENTS = 32, 128, 4, 1

DEVICES_FLAG = "--xla_force_host_platform_device_count"
WIDTH_FLAG = (
    "--xla_cpu_prefer_vector_width"  # 512 is 5-7 % faster where there is AVX-512
)


class Layout(NamedTuple):
    """How a run is spread over the machine."""

    threads: str  # "one" for each device, or "pool": one pool of XLA's
    devices: int  # that the host pretends to have; seeds are spread over them
    size: int = 0  # threads of the pool; 0: as XLA likes


def choose(recipe: str | Mapping[str, Any], seeds: int | None = None) -> Layout:
    """The layout for a recipe: its YAML, or what that holds.

    One seed gets one thread, or the pool where its network is wide. Several seeds get
    one thread: vmapped seeds in a pool of several can wait for each other for ever.

    Args:
        recipe: may be wrong in any way; what cannot be read counts as its default.
        seeds: how many; those of the recipe if None.
    """
    data = _mapping(_parsed(recipe) if isinstance(recipe, str) else recipe)
    train = _mapping(data.get("train"))
    seeds = seeds or _count(train.get("seeds"), 1)
    devices = _count(train.get("devices"), 1)
    threads = _count(train.get("threads"), 0)
    if seeds > 1 or threads == 1:
        return Layout("one", devices)
    if threads or work(data) >= WIDE:
        return Layout("pool", devices, threads)
    return Layout("one", devices)


def apply(layout: Layout) -> bool:
    """Sets the environment's variables for a layout, before JAX is imported.

    What the user set in `NPROC` and `XLA_FLAGS` stays as it is. Where JAX is imported
    already nothing can change any more: says so by returning False.
    """
    if "jax" in sys.modules:
        return False
    os.environ.update(variables(layout))
    return True


def current(devices: int) -> dict[str, Any]:
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
    return Layout("one" if one() else "pool", devices, size if size > 1 else 0)


def one() -> bool:
    """Whether XLA has one thread of the processor's for each device."""
    return os.environ.get("NPROC") == "1"


def settle() -> None:
    """Has the caller's thread run what it dispatches, where XLA has but one.

    Another's turn would only have to be awaited, at every step of the loop on the host.
    JAX reads no environment variable for it, and no longer listens once it has computed
    anything. Imports JAX. With several devices it does nothing: their seeds go on at
    the same time.
    """
    import jax

    if one() and DEVICES_FLAG not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def recorded(fields: Mapping[str, Any]) -> Layout | None:
    """The layout that `current` noted; None where these fields are not its."""
    threads = fields.get("threads")
    if threads not in ("one", "pool"):
        return None
    devices, size = _count(fields.get("devices"), 1), _count(fields.get("size"), 0)
    return Layout(threads, devices, size)


def variables(layout: Layout) -> dict[str, str]:
    """The environment variables that make a layout, beside those the user set.

    None where a GPU or TPU does the work: these are about the processor, and the pool
    is what compiles for the accelerator.
    """
    if accelerated():
        return {}
    found: dict[str, str] = {}
    threads = 1 if layout.threads == "one" else layout.size
    if threads and "NPROC" not in os.environ:
        found["NPROC"] = str(threads)
    wanted = {DEVICES_FLAG: layout.devices} if layout.devices > 1 else {}
    if _has_wide_vectors():
        wanted[WIDTH_FLAG] = 512
    flags = os.environ.get("XLA_FLAGS", "")
    mine = [f"{flag}={value}" for flag, value in wanted.items() if flag not in flags]
    if mine:
        found["XLA_FLAGS"] = " ".join(filter(None, [flags, *mine]))
    return found


def work(data: Mapping[str, Any]) -> int:
    """Multiply-adds between a network's layers, over the rows of one gradient step.

    The first layer is left out, for only the environment knows how wide its input is.
    """
    stacks = list(_stacks(data.get("network"))) or [list(LAYERS)]
    weights = max(sum(a * b for a, b in itertools.pairwise(s)) for s in stacks)
    return weights * _rows(data)


def accelerated() -> bool:
    """Whether JAX will run on something else than the processor."""
    import importlib.metadata  # here: they take a tenth of the time of `rlcli --help`
    import importlib.util

    named = os.environ.get("JAX_PLATFORMS") or os.environ.get("JAX_PLATFORM_NAME")
    if named:
        return named.split(",")[0].strip().lower() != "cpu"
    if importlib.util.find_spec("libtpu") and glob.glob("/dev/accel*"):
        return True
    present = any(map(glob.glob, ("/dev/nvidia[0-9]*", "/dev/dxg", "/dev/kfd")))
    # A graphics card is of no use to a JAX that was installed without its plug-in.
    return present and bool(importlib.metadata.entry_points(group="jax_plugins"))


def _rows(data: Mapping[str, Any]) -> int:
    """How many rows one gradient step sees."""
    if replay := data.get("replay"):
        return _count(_mapping(replay).get("batch_size"), BATCH_SIZE)
    train, updater = _mapping(data.get("train")), _mapping(data.get("updater"))
    environment = _mapping(data.get("environment"))
    steps = _count(train.get("unroll"), UNROLL)
    steps *= _count(environment.get("num_envs"), ENVIRONMENTS)
    return steps // _count(updater.get("minibatches"), MINIBATCHES)


def _stacks(network: Any, depth: int = 2) -> Iterator[list[int]]:
    """The `layers` of a network: its own, or those of each of its functions."""
    network = _mapping(network)
    layers = network.get("layers")
    if isinstance(layers, list):
        yield [_count(each, 1) for each in layers]
    elif depth:
        for each in network.values():
            yield from _stacks(each, depth - 1)


def _parsed(text: str) -> Any:
    from rlcli.recipe import documents  # here: `rlcli --help` needs no YAML

    try:
        return documents.load(text).data
    except RlcliError:
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any, otherwise: int) -> int:
    """A positive whole number, or what counts otherwise. YAML's `True` is none."""
    usable = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if usable else otherwise


def _has_wide_vectors() -> bool:
    """Whether this processor has AVX-512."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return "avx512f" in file.read()
    except OSError:  # not Linux
        return False
