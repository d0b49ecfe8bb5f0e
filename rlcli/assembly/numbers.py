"""Numbers: options of the agent's parts that are arguments of the compiled program.

A program that contains the learning rate as a constant would be compiled anew for each
value. So the numbers of a recipe are one array, `Progress.numbers`, and the parts are
built from a recipe with its elements. These remain constants:

- 0 and 1 outside of schedules: programs are simpler with them
- the values of schedules of `steps`, and of those that follow success
- options of environments, which must match the original environments bit for bit
- options of parts from outside rlcli, which may expect Python numbers

`train.adjustable` lists numbers that are arguments nevertheless.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlcli import registry, schedules
from rlcli.recipe import Part, Recipe
from rlcli.recipe.annotations import is_schedulable
from rlcli.types import Clock

_PACKAGES = ("rlcli", "optax")  # whose factories accept arrays as numbers


def recipe_numbers(recipe: Recipe) -> dict[str, float]:
    """The numbers of a recipe by their places, such as `policy.epsilon.from`."""
    numbers: dict[str, float] = {}
    parts = {**recipe.agent_parts, "environment": recipe.environment}
    for place, part in parts.items():
        _map_numbers(part, place, recipe, numbers.setdefault)
    return numbers


def without_numbers(recipe: Recipe) -> Recipe:
    """The recipe with the same value for all numbers of its agent.

    Two recipes have the same program if they are equal without their numbers.
    """
    return _map_parts(recipe, recipe.agent_parts, lambda place, number: 0.5)


def with_numbers(recipe: Recipe, numbers: Mapping[str, Any]) -> Recipe:
    """The recipe with these values of its numbers, by their places; may be traced."""
    if not numbers:
        return recipe
    parts = {**recipe.agent_parts, "environment": recipe.environment}
    return _map_parts(recipe, parts, numbers.get)


def _map_parts(
    recipe: Recipe, parts: Mapping[str, Part], function: Callable[[str, float], Any]
) -> Recipe:
    """The recipe with each number of some parts replaced by `function(place, number)`.

    Of all parts but optimizers the place is the field of the recipe.
    """
    mapped = {
        place: part._replace(options=_map_numbers(part, place, recipe, function))
        for place, part in parts.items()
    }
    optimizer = {
        group: mapped.pop(".".join(recipe.optimizer_place(group)))
        for group in recipe.optimizer
    }
    return dataclasses.replace(recipe, optimizer=optimizer, **mapped)


def numbers_of_each(
    recipes: Sequence[Recipe], seeds: int
) -> dict[str, float | tuple[float, ...]]:
    """The numbers of recipes with the same program, for `seeds` seeds of each.

    A number in which the recipes differ has a value for each seed, as `Setup.numbers`.
    """
    numbers = [recipe_numbers(recipe) for recipe in recipes]
    return {
        place: tuple(each[place] for each in numbers for _ in range(seeds))
        if any(each[place] != numbers[0][place] for each in numbers)
        else numbers[0][place]
        for place in numbers[0]
    }


def scheduled_values(
    parts: Mapping[str, Part], clock: Clock, recipe: Recipe
) -> dict[str, Any]:
    """The values of options that follow a schedule, by their places in the recipe.

    `parts` are by their places, too.
    """
    return {
        place: value
        for part_place, part in parts.items()
        for place, value in _scheduled_options(
            part.options,
            schedules.evaluate_options(part.options, clock, recipe.train.steps),
            part_place,
        )
    }


def success_conditions(recipe: Recipe) -> dict[str, schedules.Success]:
    """The conditions of all schedules that follow success, by their keys."""
    parts = [recipe.environment, recipe.wrappers, recipe.network, recipe.agent_parts]
    return {when.key: when for when in _conditions_in(parts)}


def _conditions_in(options: Any) -> Iterator[schedules.Success]:
    """The conditions in nested options."""
    if isinstance(options, schedules.Schedule):
        if options.when is not None:
            yield options.when
    elif isinstance(options, Mapping):
        for option in options.values():
            yield from _conditions_in(option)
    elif isinstance(options, list | tuple):
        for option in options:
            yield from _conditions_in(option)


def _scheduled_options(
    written: Any, values: Any, place: str
) -> Iterator[tuple[str, Any]]:
    """The places and the values of the schedules in nested options.

    The entry of a list is named by its part, or by its index if several have the name.
    """
    if isinstance(written, schedules.Schedule):
        yield place, values
    elif isinstance(written, Mapping):
        for key, option in written.items():
            key_place = f"{place}.{key.removesuffix('_')}"
            yield from _scheduled_options(option, values[key], key_place)
    elif isinstance(written, list | tuple):
        names = [each.get("name") for each in written if isinstance(each, Mapping)]
        for index, option in enumerate(written):
            name = option.get("name") if isinstance(option, Mapping) else None
            entry = name if names.count(name) == 1 else index
            yield from _scheduled_options(option, values[index], f"{place}.{entry}")


def _map_numbers(
    part: Part, place: str, recipe: Recipe, function: Callable[[str, float], Any]
) -> dict[str, Any]:
    """The options of a part, each number replaced by `function(place, number)`."""
    factory = registry.find(part.kind, part.name).factory
    factory_module = getattr(getattr(factory, "func", factory), "__module__", "")
    is_ours = factory_module.partition(".")[0] in _PACKAGES
    is_ours &= part.kind != "environment"
    annotations = {
        parameter.name: parameter.annotation
        for parameter in registry.options(factory).values()
    }

    def map_schedule(schedule: schedules.Schedule, place: str) -> schedules.Schedule:
        """Maps the numbers of a schedule, in steps; some schedules are unchanged."""
        if schedule.name in ("steps", "success"):
            return schedule
        in_steps = schedules.schedule_in_steps(schedule, recipe.train.steps)
        numbers = {
            field: function(f"{place}.{key}", getattr(in_steps, field))
            for key, field in schedules.FIELDS.items()
            if key in schedules.KEYS[schedule.name]
        }
        return dataclasses.replace(in_steps, **numbers)

    def map_option(name: str, option: Any) -> Any:
        if not _accepts_schedule(annotations[name]):
            return option
        option_place = f"{place}.{name.removesuffix('_')}"
        is_number = isinstance(option, float | int) and not isinstance(option, bool)
        if is_number and option_place in recipe.train.adjustable:
            return function(option_place, float(option))
        if not is_ours:
            return option
        if isinstance(option, schedules.Schedule):
            return map_schedule(option, option_place)
        is_number = isinstance(option, float) and option not in (0.0, 1.0)
        return function(option_place, option) if is_number else option

    return {name: map_option(name, option) for name, option in part.options.items()}


def _accepts_schedule(annotation: Any) -> bool:
    """Whether an option may follow a schedule, among other values."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(map(is_schedulable, typing.get_args(annotation)))
    return is_schedulable(annotation)
