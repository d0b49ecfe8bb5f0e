"""Registry: the names that recipes use, and the factories behind them.

A factory says itself what it is: its positional parameters are the parts that `build`
supplies, its keyword-only parameters are the options a recipe may set, their
annotations validate and convert, and its docstring is what `rlcli show` prints.

Built-in parts register with a decorator in any module of their kind's package: a new
file is enough. Third parties use entry points, by kind and contract version:

    [project.entry-points."rlcli.v1.updaters"]
    my_updater = "my_package:my_updater"
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rlcli import plugins
from rlcli.errors import RlcliError, quote, suggest

CONTRACT = "v1"
KINDS: Mapping[str, str] = MappingProxyType(  # kind -> the package, or plural
    {
        "environment": "environments",
        "wrapper": "wrappers",
        "network": "networks",
        "memory": "memories",
        "preprocess": "preprocessing",
        "policy": "policies",
        "tracer": "tracers",
        "replay": "replays",
        "updater": "updaters",
        "optimizer": "optimizers",
    }
)
_KIND_PACKAGES = {  # kinds whose package has another name
    "memory": "networks",
    "optimizer": "updaters.optimizers",
    "wrapper": "environments.wrappers",
}


class RegisteredPart(NamedTuple):
    """A part that a recipe may name."""

    kind: str
    name: str
    factory: Callable[..., Any]
    facts: Mapping[str, Any]  # what its kind wants to know: an environment's time limit
    is_trusted: bool = (
        True  # built in or installed, as opposed to named by an import path
    )


_BUILT_IN: dict[tuple[str, str], RegisteredPart] = {}


def register(kind: str, name: str | None = None, **facts: Any) -> Callable:
    """A decorator that gives a factory its name in recipes.

    `facts` are what the kind wants to know beside the signature, such as the defaults
    of an updater (`policy="sampled"`) or the `time_limit` of an environment.
    """
    if kind not in KINDS:
        raise ValueError(f"expected a kind among {sorted(KINDS)}, got {kind!r}")

    def decorate(factory: Callable) -> Callable:
        key = (kind, name or factory.__name__)
        existing = _BUILT_IN.get(key)
        if existing is not None and existing.factory.__module__ != factory.__module__:
            raise ValueError(
                f"{kind} {key[1]!r} is registered already, by "
                f"{existing.factory.__module__}"
            )
        _BUILT_IN[key] = RegisteredPart(*key, factory, MappingProxyType(facts))
        return factory

    return decorate


def parse_kind(word: str) -> str:
    """A kind, from its name in singular or plural; an error that names the nearest."""
    for kind, plural in KINDS.items():
        if word in (kind, plural):
            return kind
    raise RlcliError(f"there is no kind of part {quote(word)}", suggest(word, KINDS))


def names(kind: str) -> list[str]:
    """All names of a kind that recipes may use: built-in ones, then plug-ins."""
    _load_kind(kind)
    built_in = sorted(
        name for part_kind, name in _BUILT_IN if part_kind == kind
    )  # adapters: "x/"
    return built_in + sorted(set(_entry_points(kind)) - set(built_in))


def find(kind: str, name: str) -> RegisteredPart:
    """The part that a recipe names.

    A built-in name, an entry point, `module:attribute`, or, for an environment,
    `backend/id`: the adapter registered as `backend/`, which takes the id first. A
    plug-in's is imported by its entry point `backend/`, and registers itself.

    A plug-in or an import path that cannot be loaded, or is no factory, is an error.
    """
    _load_kind(kind)
    backend, slash, rest = name.partition("/")
    adapter = backend + slash
    if slash and (kind, adapter) not in _BUILT_IN and adapter in _entry_points(kind):
        plugins.load(_entry_points(kind)[adapter], kind, name)
    if slash and (kind, adapter) in _BUILT_IN:
        adapter = _BUILT_IN[kind, adapter]
        bound = functools.partial(adapter.factory, rest)
        return adapter._replace(name=name, factory=bound)
    if (kind, name) in _BUILT_IN:
        return _BUILT_IN[kind, name]
    if name in _entry_points(kind):
        return _plug_in(kind, name)
    if ":" in name:
        factory = plugins.imported(kind, name)
        plugins.check_factory(kind, f"{kind} {quote(name)}", factory)
        return RegisteredPart(kind, name, factory, {}, is_trusted=False)
    raise RlcliError(f"there is no {kind} {quote(name)}", suggest(name, names(kind)))


def is_plug_in(kind: str, name: str) -> bool:
    """Whether a name comes from an installed plug-in, loaded or not."""
    return name in _entry_points(kind)


def options(factory: Callable) -> dict[str, inspect.Parameter]:
    """What a recipe may set of a factory: its keyword-only parameters, by YAML name.

    Annotations are evaluated. `lambda` in YAML is `lambda_` in Python.
    """
    signature = plugins.signature_of(factory)
    return {
        name.removesuffix("_"): parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _plug_in(kind: str, name: str) -> RegisteredPart:
    """The part that an entry point names."""
    entry = _entry_points(kind)[name]
    factory = plugins.load(entry, kind, name)
    # What is imported may register itself, with facts.
    part = _BUILT_IN.get((kind, name), RegisteredPart(kind, name, factory, {}))
    label = f"{kind} {quote(name)} of {plugins.source(entry)}"
    adapter = name.endswith("/") or bool(part.facts.get("adapter"))
    plugins.check_factory(kind, label, part.factory, adapter=adapter)
    return part


@functools.cache
def _load_kind(kind: str) -> None:
    """Imports every module of the kind's package: each registers its own factories."""
    package = importlib.import_module(f"rlcli.{_KIND_PACKAGES.get(kind, KINDS[kind])}")
    for module in pkgutil.walk_packages(
        getattr(package, "__path__", []), f"{package.__name__}."
    ):
        importlib.import_module(module.name)


@functools.cache
def _entry_points(kind: str) -> dict[str, importlib.metadata.EntryPoint]:
    group = f"rlcli.{CONTRACT}.{KINDS[kind]}"
    return {
        entry_point.name: entry_point
        for entry_point in importlib.metadata.entry_points(group=group)
    }
