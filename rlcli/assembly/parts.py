"""What building any part takes: its factory, its options now, and who named it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import optax

from rlcli import plugins, registry, schedules
from rlcli.errors import RlcliError, quote
from rlcli.networks.memory import RecurrentCore
from rlcli.networks.torsos import Torso
from rlcli.preprocessing import Preprocess
from rlcli.recipe import Part, Recipe
from rlcli.recipe.documents import Place
from rlcli.types import Clock, Environment, Policy, Replay, Tracer, Updater

_RECORDS: Mapping[str, Any] = MappingProxyType(  # what a factory of a kind returns
    {
        "environment": Environment,
        "wrapper": Environment,
        "network": Torso,
        "memory": RecurrentCore,
        "preprocess": Preprocess,
        "policy": Policy,
        "tracer": Tracer,
        "replay": Replay,
        "updater": Updater,
        "optimizer": optax.GradientTransformation,
    }
)


def build_part(
    part: Part,
    clock: Clock,
    recipe: Recipe,
    *parts: Any,
    place: Place = (),
    **more: Any,
) -> Any:
    """What a part's factory makes, with its options as they are at that time."""
    factory = registry.find(part.kind, part.name).factory
    options = schedules.evaluate_options(part.options, clock, recipe.train.steps)
    place = place or (part.kind,)
    label = f"{part.kind} {quote(part.name)}"
    try:
        found = factory(*parts, **{**options, **more})
    except RlcliError as error:
        raise recipe.locate_error(place, error) from error
    except MemoryError:  # `limit_building` explains it
        raise
    except (ArithmeticError, ValueError) as error:
        message = f"{label} cannot be made with these options: {plugins.reason(error)}"
        hint = f"`rlcli show {part.kind} {part.name}` describes them"
        raise recipe.error(place, message, hint) from error
    except Exception as error:
        if is_own(factory):
            raise
        raise recipe.error(place, failed(label, error, factory)) from error
    _check_record(recipe, place, part.kind, label, found)
    return found


def failed(label: str, error: Exception, factory: Callable) -> str:
    """The message about a factory from outside rlcli that raised an exception."""
    return f"{label} cannot be made: {plugins.reason(error, factory)}"


def is_own(factory: Callable) -> bool:
    """Whether a factory is one of rlcli's, whose exceptions are bugs."""
    module = getattr(getattr(factory, "func", factory), "__module__", "")
    return str(module).startswith("rlcli.")


def positional_parameters(factory: Callable) -> list[str]:
    """The names of the parts that a factory is given."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        name
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind in kinds
    ]


def format_names(names: Sequence[str] | Mapping[str, Any]) -> str:
    """Names for a message."""
    return ", ".join(f"`{name}`" for name in names) or "nothing"


def _check_record(
    recipe: Recipe, place: Place, kind: str, label: str, found: Any
) -> None:
    """Refuses what a factory returned if fields of its kind's record are missing."""
    wanted = _RECORDS[kind]
    if isinstance(found, wanted):
        return
    missing = [name for name in wanted._fields if not hasattr(found, name)]
    if missing:
        raise recipe.error(
            place,
            f"{label} is no factory of its kind: it made "
            f"{quote(type(found).__name__)}, which has no `{missing[0]}`",
            f"it has to return a `{wanted.__module__}.{wanted.__name__}`",
        )
