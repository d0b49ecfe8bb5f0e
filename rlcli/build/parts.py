"""What building any part takes: its factory, its options now, and who named it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlcli import registry, schedules
from rlcli.errors import RlcliError
from rlcli.recipe import Part, Recipe
from rlcli.recipe.documents import Place
from rlcli.types import Clock


def made(
    part: Part,
    clock: Clock,
    recipe: Recipe,
    *parts: Any,
    place: Place = (),
    **more: Any,
) -> Any:
    """What a part's factory makes, with its options as they are at that time."""
    factory = registry.find(part.kind, part.name).factory
    options = schedules.at(part.options, clock, recipe.train.steps)
    try:
        return factory(*parts, **{**options, **more})
    except RlcliError as error:
        raise recipe.placed(place or (part.kind,), error) from error


def positional(factory: Callable) -> list[str]:
    """The names of the parts that a factory is given."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        name
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind in kinds
    ]


def listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    """Names for a message."""
    return ", ".join(f"`{name}`" for name in names) or "nothing"
