"""Data parallelism: the share of a recipe for one device, and parts without shares.

With `train.data_parallel: N` every device builds the same parts, with 1 / N of the
environments, of the replay and of its batches.
"""

import dataclasses
from typing import Any

import jax

from rlcli import registry
from rlcli.errors import RlcliError, quote
from rlcli.loop.progress import Setup
from rlcli.recipe import Part, Recipe
from rlcli.recipe.annotations import has_mark
from rlcli.types import Replay, Updater
from rlcli.xla import processes, threads

_PLACE = ("train", "data_parallel")


def share_of_device(recipe: Recipe) -> Recipe:
    """The recipe with the environments and the replay of one device.

    Raises an `RlcliError` if the devices cannot have equal shares.
    """
    devices = recipe.train.data_parallel
    if devices == 1:
        return recipe
    name = recipe.environment.name
    if registry.find("environment", name).facts.get("adapter"):
        raise recipe.error(
            _PLACE,
            f"environment {quote(name)} runs on the host, where its copies cannot be "
            "divided among devices",
            "remove `data_parallel`",
        )
    if recipe.levels is not None:
        raise recipe.error(
            ("environment", "levels"),
            "what is known of `levels` cannot be divided among devices",
            "remove `data_parallel`, or `levels`",
        )
    replay = recipe.replay and _divide_options(recipe, recipe.replay, devices)
    num_envs = _divide(
        recipe, ("environment", "num_envs"), recipe.num_envs, devices, "environments"
    )
    return dataclasses.replace(recipe, num_envs=num_envs, replay=replay)


def check_data_parallel(
    recipe: Recipe, updater: Updater, replay: Replay | None
) -> None:
    """Refuses parts that cannot learn on several devices together."""
    if recipe.train.data_parallel == 1:
        return
    if replay is not None and replay.traits.dataset is not None:
        raise recipe.error(
            _PLACE,
            "a data set cannot be divided among devices",
            "remove `data_parallel`",
        )
    if not updater.traits.is_data_parallel:
        raise recipe.error(
            _PLACE,
            f"updater {quote(recipe.updater.name)} does not support `data_parallel`: "
            "it does not average its updates over devices",
            "remove `data_parallel`",
        )


def check_devices(recipe: Recipe, setup: Setup) -> None:
    """Refuses to train on more devices than JAX has, or on those that could deadlock.

    A setup that only evaluates policies needs a single device.
    """
    devices = recipe.train.data_parallel
    _check_processes(recipe, setup)
    if devices == 1:
        return
    available = jax.local_device_count() * processes.count()
    if setup.all_devices > available:
        raise recipe.error(
            _PLACE,
            f"`data_parallel: {devices}`, but JAX finds only {available} devices",
            _describe_remedy(setup.all_devices // processes.count()),
        )
    if jax.default_backend() == "cpu" and not threads.is_single_threaded():
        raise recipe.error(
            _PLACE,
            "`data_parallel` on a CPU could deadlock in a thread pool that several "
            "devices share",
            _describe_remedy(setup.all_devices // processes.count()),
        )


def _describe_remedy(devices: int) -> str:
    """How to get the devices of a process; each has one thread."""
    if jax.default_backend() != "cpu":
        return f"lower `{'.'.join(_PLACE)}`"
    return (
        "call rlcli before the first use of JAX, which fixes the devices, or start "
        f"Python with `{threads.variables_before_start(devices)} python ...`"
    )


def _check_processes(recipe: Recipe, setup: Setup) -> None:
    """Refuses processes that cannot have equally many devices of the run."""
    count, devices = processes.count(), recipe.train.data_parallel
    if count == 1 or (devices > 1 and setup.all_devices % count == 0):
        return
    raise recipe.error(
        _PLACE,
        f"{count} processes cannot share the devices of an agent with "
        f"`data_parallel: {devices}`",
        f"set `data_parallel` to a multiple of {count}",
    )


def _divide_options(recipe: Recipe, part: Part, devices: int) -> Part:
    """The part with the share of one device of the options that devices divide."""
    factory = registry.find(part.kind, part.name).factory
    names = [
        option.name
        for option in registry.options(factory).values()
        if has_mark(option.annotation, "divided")
    ]
    if not names:
        raise recipe.error(
            _PLACE,
            f"{part.kind} {quote(part.name)} does not support `data_parallel`: none of "
            "its options declares that devices divide it",
            "annotate its capacity and its batch size as `rlcli.types.Divided`",
        )

    def share(name: str, value: Any) -> Any:
        if name not in names or value is None:
            return value
        return _divide(recipe, (part.kind, name), value, devices, "")

    options = {name: share(name, value) for name, value in part.options.items()}
    return part._replace(options=options)


def _divide(
    recipe: Recipe, place: tuple[str, str], value: int, devices: int, noun: str
) -> int:
    """The share of one device; refuses a remainder."""
    if value % devices == 0:
        return value // devices
    what = f"{value:,} {noun}" if noun else f"`{place[0]}.{place[1]}: {value}`"
    higher = -(-value // devices) * devices
    raise recipe.error(
        place,
        f"{what} cannot be divided equally among the {devices} devices of "
        "`train.data_parallel`",
        f"use a multiple of {devices}, such as {higher}",
    )


def explain_share(recipe: Recipe, error: RlcliError) -> RlcliError:
    """The error of a part that is built with the share of one device."""
    devices = recipe.train.data_parallel
    if devices == 1:
        return error
    return RlcliError(
        f"{error.message}; these are the numbers of one device, of the {devices} of "
        "`train.data_parallel`",
        error.hint,
    )
