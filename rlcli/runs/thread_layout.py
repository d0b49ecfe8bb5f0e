"""Thread layout: chooses how a run uses the cores, before JAX uses a device.

XLA sizes its thread pool once, when JAX uses a device for the first time, so the layout
is chosen from the recipe's plain YAML. Errors in the recipe are ignored here; the
loader reports them.
Imports no JAX at module level.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.errors import RlcliError
from rlcli.xla import compilation_cache, threads
from rlcli.xla.threads import Layout

if TYPE_CHECKING:
    from rlcli.recipe import AnyRecipe, RecipeDocument

# Multiply-adds of a network's layers over one batch from which several threads are
# faster: 64-64 with 32 rows (0.1 M) can run at half its speed in the pool; 64-64 with
# 2 048 rows (8 M) gains 15 %, 256-256 with 256 rows (17 M) gains 70 %.
WIDE_WORK = 8_000_000
# The defaults of a recipe for the sizes that matter here.
LAYERS = (64, 64)
BATCH_SIZE, UNROLL, MINIBATCHES, ENVIRONMENTS = 32, 128, 4, 1
# Adapters of environments on the host, whose seeds use one device.
HOST_ADAPTERS = ("envpool/", "gymnasium/", "pettingzoo/")


def apply_for_check(recipes: Sequence[RecipeDocument]) -> None:
    """Makes the devices that recipes with `train.data_parallel` need to be traced."""
    data = [_read(recipe) for recipe in recipes]
    layouts = [
        choose_layout(each)
        for each in data
        if _positive_or(_as_mapping(each.get("train")).get("data_parallel"), 1) > 1
    ]
    if layouts:
        _apply(max(layouts, key=lambda layout: layout.devices))


def apply_for_recipe(
    recipe: AnyRecipe, *, set: Sequence[str] = (), runs: int = 1, processes: int = 1
) -> str:
    """Sets the threads for training a recipe; returns a warning if it is too late.

    Its `runs` are trained together. Several processes, on one host or several, have
    equal shares of the devices.
    """
    data = _read(recipe, set)
    seeds = _positive_or(_as_mapping(data.get("train")).get("seeds"), 1)
    layout = choose_layout(data, runs * seeds)
    return _apply(layout, processes)


def apply_for_run(path: str | Path, set: Sequence[str] = (), processes: int = 1) -> str:
    """Sets the threads for resuming a run, to those that it started with.

    With other devices in `set`, the threads are those of a new run. Several processes
    have equal shares of the devices.
    """
    places = {setting.partition("=")[0].strip() for setting in set}
    if places & {"train.devices", "train.data_parallel"}:
        from rlcli.runs.locate import locate_run  # here, to keep `--help` fast

        recipe = locate_run(path).resolved_recipe
        return apply_for_recipe(recipe, set=set, processes=processes)
    return _apply(_recorded_layout(path) or Layout("one", 1), processes)


def _read(recipe: AnyRecipe, set: Sequence[str] = ()) -> Mapping[str, Any]:
    """The data of a recipe; {} if it cannot be read."""
    from rlcli.recipe import read_without_parts  # here, to keep `--help` fast

    try:
        return _as_mapping(read_without_parts(recipe, set).data)
    except RlcliError:
        return {}


def _apply(layout: Layout, processes: int = 1) -> str:
    """Applies a process's share of a layout, within the limits of this machine.

    Returns a warning if the layout is beyond them, or JAX already uses another.
    """
    asked = layout._replace(devices=-(-layout.devices // processes))
    layout = threads.bound_layout(asked)
    compilation_cache.enable_compilation_cache()
    is_applied = threads.apply_layout(layout)
    threads.disable_async_dispatch()  # before the first use of a device
    if threads.has_accelerator():
        return ""
    if is_applied:
        return "" if layout == asked else _describe_bound(asked, layout)
    current = threads.current_layout(layout.devices)
    if current["threads"] == layout.threads:
        return ""
    return (
        "JAX was used before rlcli could set its threads: this recipe should use "
        f"`{layout.threads}`, but JAX uses `{current['threads']}`; start Python with "
        "`NPROC=1`, because several seeds in a thread pool can deadlock"
    )


def _describe_bound(asked: Layout, layout: Layout) -> str:
    """The warning that a layout is beyond the limits of this machine."""
    what, number, most = "threads", asked.size, layout.size
    if asked.devices > layout.devices:
        what, number, most = "devices", asked.devices, layout.devices
    return f"{number:,} {what} are too many for this machine: {most} are used"


def apply_for_policy(path: str | Path) -> None:
    """Sets the threads for an evaluation: those of the run, on one device.

    All episodes of an evaluation run as one batch. The runs of a study
    may have other layouts: one thread is correct for all.
    """
    from rlcli.runs.study_record import find_study  # here, to keep `--help` fast

    is_single = find_study(path) is None
    layout = (_recorded_layout(path) if is_single else None) or Layout("one", 1)
    _apply(layout._replace(devices=1))


def _recorded_layout(path: str | Path) -> Layout | None:
    """The layout that a run was trained with; None if there is no such run."""
    from rlcli.runs.locate import locate_run
    from rlcli.runs.snapshot_content import CHECKPOINT, read_content

    try:
        run = locate_run(path)
        recorded = run.read_info().get("layout")
        latest = run.latest_checkpoint()
        if recorded is None and latest is not None:  # `run.json` is missing
            recorded = read_content(latest, CHECKPOINT)["circumstances"]["layout"]
    except RlcliError:
        return None
    return parse_layout(recorded) if isinstance(recorded, Mapping) else None


def choose_layout(recipe: str | Mapping[str, Any], seeds: int | None = None) -> Layout:
    """Chooses the layout for a recipe, given as YAML or as data.

    One seed uses one thread, or the thread pool if its network is wide. Several seeds
    are divided among the cores, each with one thread: vmapped seeds in a thread pool
    can deadlock.

    Args:
        recipe: may be invalid; unreadable options count as their defaults.
        seeds: the number of seeds; that of the recipe if None.
    """
    data = _as_mapping(_parse_yaml(recipe) if isinstance(recipe, str) else recipe)
    train = _as_mapping(data.get("train"))
    seeds = seeds or _positive_or(train.get("seeds"), 1)
    group = _positive_or(train.get("data_parallel"), 1)
    cores = max(1, threads.usable_cores() // group)
    devices = group * threads.fewest_devices(seeds, cores)
    devices = _positive_or(train.get("devices"), devices)
    environment = data.get("environment")
    name = str(_as_mapping(environment).get("name", environment))
    if name.startswith(HOST_ADAPTERS):
        devices = 1
    size = _positive_or(train.get("threads"), 0)
    if seeds > 1 or group > 1 or size == 1:
        return Layout("one", devices)
    if size or estimate_work(data) >= WIDE_WORK:
        return Layout("pool", devices, size)
    return Layout("one", devices)


def parse_layout(fields: Mapping[str, Any]) -> Layout | None:
    """Parses a layout recorded by `current_layout`; None if the fields are invalid."""
    threads = fields.get("threads")
    if threads not in ("one", "pool"):
        return None
    devices = _positive_or(fields.get("devices"), 1)
    return Layout(threads, devices, _positive_or(fields.get("size"), 0))


def estimate_work(data: Mapping[str, Any]) -> int:
    """Multiply-adds between a network's layers, over the rows of one gradient step.

    Excludes the first layer, because only the environment defines its input width.
    """
    stacks = list(_layer_stacks(data.get("network"))) or [list(LAYERS)]
    weights = max(sum(a * b for a, b in itertools.pairwise(s)) for s in stacks)
    return weights * _gradient_rows(data)


def _gradient_rows(data: Mapping[str, Any]) -> int:
    if replay := data.get("replay"):
        return _positive_or(_as_mapping(replay).get("batch_size"), BATCH_SIZE)
    train, updater = _as_mapping(data.get("train")), _as_mapping(data.get("updater"))
    environment = _as_mapping(data.get("environment"))
    steps = _positive_or(train.get("unroll"), UNROLL)
    steps *= _positive_or(environment.get("num_envs"), ENVIRONMENTS)
    return steps // _positive_or(updater.get("minibatches"), MINIBATCHES)


def _layer_stacks(network: Any, depth: int = 2) -> Iterator[list[int]]:
    """The `layers` of a network, or of each of its functions."""
    network = _as_mapping(network)
    layers = network.get("layers")
    if isinstance(layers, list):
        yield [_positive_or(size, 1) for size in layers]
    elif depth:
        for function in network.values():
            yield from _layer_stacks(function, depth - 1)


def _parse_yaml(text: str) -> Any:
    from rlcli.recipe import documents  # here, to keep `--help` fast

    try:
        return documents.load_document(text).data
    except RlcliError:
        return {}


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _positive_or(value: Any, default: int) -> int:
    """The value if it is a positive integer, else the default."""
    is_positive = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if is_positive else default
