"""Plug-ins: factories from outside rlcli, checked before they are called.

They come from the entry points of installed distributions or from import paths. A
plug-in that raises when it is imported, or that cannot be a factory of its kind, raises
`RlcliError`.
"""

import contextlib
import functools
import importlib.metadata
import importlib.util
import inspect
import sys
import sysconfig
import traceback
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote, shorten
from rlcli.quoting import printable
from rlcli.registry import user_code
from rlcli.registry.option_types import check_annotation

TRACEBACK = "set `RLCLI_TRACEBACK=1` to see the traceback"  # of an exception in a hint
# The parts that `assembly` offers to the factories of a kind: a factory gets those that
# its positional parameters name. A policy gets what its updater offers as well, and the
# positional parameter of a network is the observation of a forward pass.
_OFFERS = {
    "environment": ("rendering",),
    "wrapper": ("core", "numbers"),
    "head": ("actions", "role"),
    "memory": (),
    "preprocess": (),
    "tracer": (),
    "replay": ("window", "unroll", "num_envs", "goal_reward", "time_limit"),
    "updater": ("parts", "tracer", "simulator"),
    "intrinsic_reward": ("parts",),
    "optimizer": (),
    "tracker": (),
    "hook": (),
}


def load_plugin(entry: importlib.metadata.EntryPoint, kind: str, name: str) -> Any:
    """Loads an entry point; an error names its distribution and module."""
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        label = f"{kind} {quote(name)} of {source(entry)}"
        message = f"{label} cannot be loaded: {reason(error)}"
        raise RlcliError(message, "update or uninstall the plug-in") from error


def source(entry: importlib.metadata.EntryPoint) -> str:
    """Describes the distribution and the module of an entry point, for a message."""
    label = "a plug-in"
    with contextlib.suppress(Exception):  # metadata may be missing or broken
        if entry.dist is not None:
            label = f"plug-in {quote(f'{entry.dist.name} {entry.dist.version}')}"
    return f"{label} (module {quote(entry.value.partition(':')[0].strip())})"


def import_factory(kind: str, name: str) -> Callable:
    """Imports the factory at an import path `module:attribute`."""
    module, _, attribute = name.partition(":")
    label = f"{kind} {quote(name)}"
    if module.startswith("./") or module.endswith(".py"):
        dotted = module.removeprefix("./").removesuffix(".py").replace("/", ".")
        hint = "put the file beside the recipe, and name it without folder and `.py`"
        if _is_dotted_name(dotted):
            hint = f"write {quote(f'{dotted}:{attribute}')}"
        raise RlcliError(f"{label} names a file instead of a module", hint)
    if not _is_dotted_name(f"{module}.{attribute}"):
        hint = "an import path is `module:attribute`, as in `my_package.parts:my_part`"
        raise RlcliError(f"{label} is not an import path", hint)
    if _is_standard(module):
        message = f"{label} is not a factory: module {quote(module)} is part of Python"
        hint = "an import path names a factory, as in `my_package.parts:my_part`"
        raise RlcliError(message, hint)
    try:
        imported_module = user_code.import_module(module)
    except (Exception, SystemExit) as error:
        raise import_error(label, module, error) from error
    try:
        return functools.reduce(getattr, attribute.split("."), imported_module)
    except AttributeError as error:
        message = f"{label}: {shorten(str(error), 160)}"
        raise RlcliError(message, "check the name after the colon") from error


def _is_dotted_name(text: str) -> bool:
    return all(name.isidentifier() for name in text.split("."))


def check_factory(
    kind: str, label: str, factory: Any, *, adapter: bool = False
) -> None:
    """Raises an error if an object cannot be a factory of a kind; does not call it."""
    if not callable(factory):
        raise RlcliError(f"{label} is not a factory: it cannot be called")
    _check_options(factory, label)
    offers = _OFFERS.get(kind)
    if offers is None or adapter:
        return
    for name, default in positional_parameters(factory).items():
        if default is inspect.Parameter.empty and name not in offers:
            article = "an" if kind[0] in "aeiou" else "a"
            known = ", ".join(f"`{offer}`" for offer in offers) or "none"
            raise RlcliError(
                f"{label} is not a factory of its kind: it has a positional parameter "
                f"`{name}`, but the parts that {article} {kind} gets are {known}",
                "options of a recipe are keyword-only: write them after `*`",
            )


def _check_options(factory: Callable, label: str) -> None:
    """Refuses options whose annotations cannot be evaluated, or would be ignored."""
    signature_of(factory, label)
    what = "the annotations of its options cannot be read"
    try:
        for key, option in options(factory).items():
            what = f"the annotation of `{key}`"
            check_annotation(option.annotation)
    except Exception as error:  # annotations are expressions, which may raise anything
        raise RlcliError(
            f"{label} is not a factory: {what}: {reason(error)}",
            "docs/parts.md lists the types of options; `Any` takes every value",
        ) from error


def positional_parameters(factory: Callable) -> dict[str, Any]:
    """The positional parameters of a factory with their defaults, by name."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {
        name: parameter.default
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind in kinds
    }


def call_factory(
    factory: Callable, offers: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    """Calls a factory with its options, and the offers that its parameters name."""
    parts = {
        name: offers[name] for name in positional_parameters(factory) if name in offers
    }
    own_options = dict(options)
    for name, parameter in inspect.signature(factory).parameters.items():
        record = parameter.default
        if is_record(record):
            given = {*record._fields} & {*options}
            fields = {field: own_options.pop(field) for field in given}
            own_options[name] = record._replace(**fields)
    return factory(**parts, **own_options)


def is_record(default: Any) -> bool:
    """Whether the default of a parameter is a NamedTuple, a record of options."""
    return isinstance(default, tuple) and hasattr(default, "_fields")


def options(factory: Callable) -> dict[str, inspect.Parameter]:
    """The options of a factory: its keyword-only parameters, by their YAML names.

    A record of options has one for each field. Annotations are evaluated. `lambda` in
    YAML is `lambda_` in Python.
    """
    signature = signature_of(factory)
    return {
        option.name.removesuffix("_"): option
        for parameter in signature.parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        for option in _expand_record(parameter)
    }


def _expand_record(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The options of a parameter: the fields of a record of options, or itself."""
    if not is_record(parameter.default):
        return [parameter]
    hints = typing.get_type_hints(type(parameter.default), include_extras=True)
    return [
        parameter.replace(name=name, default=value, annotation=hints[name])
        for name, value in parameter.default._asdict().items()
    ]


def signature_of(factory: Callable, label: str = "") -> inspect.Signature:
    """The signature of a factory, with its annotations evaluated."""
    try:
        return inspect.signature(factory, eval_str=True)
    except Exception as error:  # annotations are expressions, which may raise anything
        label = label or quote(getattr(factory, "__name__", factory))
        raise RlcliError(
            f"{label} is not a factory: its signature cannot be read: {reason(error)}",
            "a factory is a Python function with keyword-only options",
        ) from error


def reason(error: BaseException, factory: Any = None) -> str:
    """An exception in one line, with the line of user code or of the factory's file.

    An exception without text, such as that of a bare `assert`, is the line of code that
    raised it.
    """
    try:
        text = " ".join(printable(str(error)).split())
    except Exception:  # noqa: BLE001 - `__str__` of a plug-in's exception
        text = ""
    code = getattr(inspect.unwrap(factory), "__code__", None) if factory else None
    place = user_code.find_place(error, code.co_filename if code else "")
    where = f" ({user_code.format_place(place)})" if place else ""
    if not text and error.__traceback__:
        raised = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(printable(raised.line or "").split())
        if not place or place != (raised.filename, raised.lineno):
            where = f" ({Path(raised.filename).name}:{raised.lineno})"
    name = type(error).__name__
    return shorten(f"{name}: {text}" if text else name, 160) + where


def import_error(label: str, module: str, error: BaseException) -> RlcliError:
    """The error about a module that cannot be imported, with a hint."""
    if isinstance(error, RlcliError):  # of a decorator, which explains itself
        place = user_code.find_place(error)
        where = f" ({user_code.format_place(place)})" if place else ""
        return RlcliError(f"{label}: {error.message}{where}", error.hint)
    cause, hint = reason(error), TRACEBACK
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and f"{module}.".startswith(f"{missing}."):
        cause = f"there is no module {quote(missing)}"
        file = module.replace(".", "/")
        hint = f"put `{file}.py` beside the recipe, or install the module"
    elif missing:
        hint = f"install {quote(missing)}, which the module imports"
    message = f"{label}: module {quote(module)} cannot be imported: {cause}"
    return RlcliError(message, hint)


def _is_standard(module: str) -> bool:
    """Whether a module belongs to Python's standard library, which has no parts.

    A user's module may have the same name, so the location of the file is tested.
    Imports nothing.
    """
    root = module.partition(".")[0]
    if root not in sys.stdlib_module_names:
        return False
    user_code.extend_path()
    spec = importlib.util.find_spec(root)
    if spec is None or spec.origin in (None, "built-in", "frozen"):
        return spec is not None
    file, library = Path(spec.origin), sysconfig.get_path("stdlib")
    installed = {"site-packages", "dist-packages"} & {*file.parts}
    return file.is_relative_to(library) and not installed
