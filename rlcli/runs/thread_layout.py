"""Thread layout: how a run uses the cores, set before JAX is imported.

XLA sizes its thread pool once, when JAX is imported, so the layout is chosen
from the recipe's plain YAML. The real loader reports what is wrong with it.
Imports no JAX.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.xla import compilation_cache, threads
from rlcli.xla.threads import Layout

# Multiply-adds of a network's layers over one batch, from which on several threads win:
# 64-64 with 32 rows (0.1 M) runs at half its speed in the pool, if unlucky; 64-64 with
# 2 048 rows (8 M) gains 15 %, 256-256 with 256 rows (17 M) gains 70 %.
WIDE = 8_000_000
# What counts where the recipe is silent: its defaults, by the size that matters here.
LAYERS = (64, 64)
BATCH_SIZE, UNROLL, MINIBATCHES, ENVIRONMENTS = 32, 128, 4, 1


def for_recipe(
    recipe: str | Path | Mapping[str, Any], *, set: Sequence[str], seeds: int | None
) -> str:
    """Settles the threads for training a recipe; what to warn of, if it is too late."""
    from rlcli.recipe import (
        documents,  # here, for `--help` is to answer at once
        find,
    )

    try:
        if isinstance(recipe, Mapping):
            document = documents.from_mapping(recipe)
        else:
            document = documents.load(find(recipe))
        data = documents.merge(document, set).data
    except RlcliError:
        data = {}
    return _applied(choose(data, seeds))


def for_run(path: str | Path) -> str:
    """Settles the threads for going on with a run: those that it began with."""
    return _applied(_recorded(path) or Layout("one", 1))


def _applied(layout: Layout) -> str:
    """Applies a layout; a sentence where JAX was imported with another one."""
    compilation_cache.remember()
    if threads.apply(layout) or threads.accelerated():
        return ""
    there = threads.current(layout.devices)
    if there["threads"] == layout.threads:
        return ""
    return (
        f"JAX was imported before rlcli could choose its threads: `{layout.threads}` "
        f"would suit this recipe, and it is `{there['threads']}`; set `NPROC=1` before "
        "Python starts, for several seeds in a pool of threads can wait for ever"
    )


def for_policy(path: str | Path) -> None:
    """Settles the threads for playing with what a run learnt.

    One device: all that is played goes through it as one batch.
    """
    layout = _recorded(path) or Layout("one", 1)
    _applied(layout._replace(devices=1))


def _recorded(path: str | Path) -> Layout | None:
    """The layout that a run was trained with; None where there is no such run."""
    from rlcli.runs import checkpoint
    from rlcli.runs.run_folder import locate_run

    try:
        run = locate_run(path)
        recorded = run.read_info().get("layout")
        if recorded is None and (latest := run.latest()):  # `run.json` is lost
            recorded = checkpoint.read(latest)["circumstances"]["layout"]
    except (RlcliError, LookupError, TypeError):
        return None
    return recorded(recorded) if isinstance(recorded, Mapping) else None


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


def recorded(fields: Mapping[str, Any]) -> Layout | None:
    """The layout that `current` noted; None where these fields are not its."""
    threads = fields.get("threads")
    if threads not in ("one", "pool"):
        return None
    devices, size = _count(fields.get("devices"), 1), _count(fields.get("size"), 0)
    return Layout(threads, devices, size)


def work(data: Mapping[str, Any]) -> int:
    """Multiply-adds between a network's layers, over the rows of one gradient step.

    The first layer is left out, for only the environment knows how wide its input is.
    """
    stacks = list(_stacks(data.get("network"))) or [list(LAYERS)]
    weights = max(sum(a * b for a, b in itertools.pairwise(s)) for s in stacks)
    return weights * _rows(data)


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
