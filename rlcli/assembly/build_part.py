"""Parts: builds a part of a recipe, and explains exceptions of code of the user."""

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import optax
from gymnasium.envs.registration import WrapperSpec

from rlcli import registry, schedules
from rlcli.errors import RlcliError, quote
from rlcli.networks.memory import RecurrentCore
from rlcli.networks.torsos import Torso
from rlcli.preprocessing import Preprocess
from rlcli.quoting import join_shell
from rlcli.recipe import Part, Recipe
from rlcli.recipe.documents import Place
from rlcli.registry import plugins, user_code
from rlcli.types import Clock, Core, Environment, Policy, Replay, Tracer, Updater
from rlcli.updaters.intrinsic_rewards import IntrinsicReward

_RECORDS: Mapping[str, Any] = {  # the return type of factories, by kind
    "environment": Core,
    "wrapper": Core,
    "network": Torso,
    "memory": RecurrentCore,
    "preprocess": Preprocess,
    "policy": Policy,
    "tracer": Tracer,
    "replay": Replay,
    "updater": Updater,
    "intrinsic_reward": IntrinsicReward,
    "optimizer": optax.GradientTransformation,
}


def build_part(
    part: Part,
    clock: Clock,
    recipe: Recipe,
    offers: Mapping[str, Any] = MappingProxyType({}),
    *,
    place: Place = (),
    values: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Calls the factory of a part with the values of its options at that time.

    It gets the `offers` that its positional parameters name. `values` replace those of
    options.
    """
    registered = registry.find(part.kind, part.name)
    factory = registered.factory
    place = place or (part.kind,)
    options = schedules.evaluate_options(part.options, clock, recipe.train.steps)
    label = f"{part.kind} {quote(part.name)}"
    try:
        record = registry.call_factory(factory, offers, {**options, **values})
    except RlcliError as error:
        raise recipe.locate_error(place, error) from error
    except MemoryError:  # `limit_building` explains it
        raise
    except (ArithmeticError, ValueError) as error:
        reason = plugins.reason(error, factory)
        message = f"{label} cannot be built with these options: {reason}"
        shown = join_shell([part.kind, part.name])
        hint = f"`rlcli show {shown}` describes the options"
        raise recipe.error(place, message, hint) from error
    except (Exception, SystemExit) as error:  # a plug-in may raise anything
        if is_own(factory):
            raise
        raise recipe.error(place, failure_message(label, error, factory)) from error
    expected = _RECORDS[part.kind]
    if registered.facts.get("adapter"):
        expected = Environment
    elif registered.facts.get("library"):
        expected = WrapperSpec
    fields = [] if isinstance(record, expected) else expected.__annotations__
    if missing := [name for name in fields if not hasattr(record, name)]:
        raise recipe.error(
            place,
            f"{label} returned {quote(type(record).__name__)}, which has no "
            f"`{missing[0]}`",
            f"return a `{expected.__module__}.{expected.__name__}`",
        )
    return record


def build_listed_part(
    part: Part, recipe: Recipe, index: int, contract: Any, hint: str
) -> Any:
    """Builds a part that `train` lists, which runs outside of JAX: a tracker or a hook.

    `hint` says what an instance of the `contract` is.
    """
    place, label = ("train", f"{part.kind}s", index), f"{part.kind} {quote(part.name)}"
    factory = registry.find(part.kind, part.name).factory
    try:
        built = registry.call_factory(factory, {}, copy.deepcopy(dict(part.options)))
    except RlcliError as error:
        raise recipe.locate_error(place, error) from error
    except Exception as error:
        message = f"{label} raised {plugins.reason(error, factory)}"
        raise recipe.error(place, message, plugins.TRACEBACK) from error
    if not isinstance(built, contract):
        message = f"{label} returned {quote(type(built).__name__)}"
        raise recipe.error(place, message, hint)
    return built


def failure_message(label: str, error: BaseException, factory: Callable) -> str:
    """The message about a factory from outside rlcli that raised an exception."""
    return f"{label} cannot be built: {plugins.reason(error, factory)}"


def is_own(factory: Callable) -> bool:
    """Whether a factory belongs to rlcli, so that its exceptions are bugs."""
    module = getattr(getattr(factory, "func", factory), "__module__", "")
    return str(module).startswith("rlcli.")


def format_names(names: Sequence[str] | Mapping[str, Any]) -> str:
    """Formats names for a message."""
    return ", ".join(f"`{name}`" for name in names) or "nothing"


@contextlib.contextmanager
def explain_user_errors(recipe: Recipe) -> Iterator[None]:
    """Converts an exception of user code to an `RlcliError` with its file and line.

    User code is called while a program is traced, between the functions of JAX, whose
    traceback is long. Exceptions of rlcli itself keep theirs.
    """
    try:
        yield
    except (RlcliError, MemoryError):  # `limit_building` explains a MemoryError
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        place = user_code.find_place(error)
        if place is None:
            raise
        message = f"{_owner(recipe, place[0])} raised {plugins.reason(error)}"
        raise RlcliError(message, plugins.TRACEBACK) from error


def _owner(recipe: Recipe, file: str) -> str:
    """The part of a recipe whose import path names a file."""
    for kind, name in recipe.part_names:
        module = sys.modules.get(name.partition(":")[0])
        if ":" in name and getattr(module, "__file__", None) == file:
            return f"{kind} {quote(name)}"
    return "code of the recipe"
