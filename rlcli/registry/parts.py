"""Parts: the names that recipes use, and the factories behind them.

The signature of a factory is its specification. The positional parameters name the
parts that `assembly` passes. The keyword-only parameters are the options that a recipe
may set, validated and converted by their annotations. A keyword-only parameter whose
default is a NamedTuple is a record of options: its fields are options of the part.
`rlcli show` prints the docstring.

Built-in parts register with a decorator, in any module of the package of their kind.
Third parties use entry points, by kind and contract version:

    [project.entry-points."rlcli.v1.updaters"]
    my_updater = "my_package:my_updater"
"""

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import typing
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from rlcli.errors import RlcliError, quote
from rlcli.registry import plugins
from rlcli.registry.common_names import suggest_name

CONTRACT = "v1"
KINDS: Mapping[str, str] = {  # kind -> plural, usually its package
    "environment": "environments",
    "wrapper": "wrappers",
    "network": "networks",
    "head": "heads",
    "memory": "memories",
    "preprocess": "preprocessing",
    "policy": "policies",
    "tracer": "tracers",
    "replay": "replays",
    "updater": "updaters",
    "intrinsic_reward": "intrinsic_rewards",
    "optimizer": "optimizers",
    "tracker": "trackers",
    "hook": "hooks",
}
_KIND_PACKAGES = {  # kinds whose package is not their plural
    "head": "networks.heads",
    "hook": "training.hook",
    "intrinsic_reward": "updaters.intrinsic_rewards",
    "memory": "networks",
    "optimizer": "updaters.optimizers",
    "wrapper": "environments.wrappers",
}


class RegisteredPart(NamedTuple):
    """A part that a recipe may name."""

    kind: str
    name: str
    factory: Callable[..., Any]
    facts: Mapping[str, Any]  # properties of its kind, such as a time limit
    is_trusted: bool = True  # built in or installed; False for an import path
    preset_of: str = ""  # the part that this one is, with other defaults

    def takes(self, offer: str) -> bool:
        """Whether the factory has a positional parameter of this name."""
        return offer in plugins.positional_parameters(self.factory)


class _ClassAdapter(NamedTuple):
    """Makes parts of the classes of another library that import paths name."""

    kind: str
    base: type
    factory: Callable[[str, Callable], Callable]  # (name, class) -> factory
    facts: Mapping[str, Any]
    argument: str  # the first parameter of functions that need one, "" if none does

    def accepts(self, maker: Any) -> bool:
        """Whether a maker is a subclass of `base`, or a function that returns one.

        The annotation of a function tells what it returns. One without is known by the
        name of its first parameter, or is called, if it needs no argument: the
        factories of rlcli are pure and cheap.
        """
        if isinstance(maker, type):
            return issubclass(maker, self.base)
        if not inspect.isfunction(maker):
            return False
        try:
            result = plugins.signature_of(maker).return_annotation
        except RlcliError:  # a name that only type checkers import
            result = inspect.Signature.empty
        if result is inspect.Signature.empty:
            first = next(iter(inspect.signature(maker).parameters), "")
            if self.argument:
                return first == self.argument
            return _returns(maker, self.base)
        result = typing.get_origin(result) or result
        return isinstance(result, type) and issubclass(result, self.base)


_BUILT_IN: dict[tuple[str, str], RegisteredPart] = {}
_CLASS_ADAPTERS: list[_ClassAdapter] = []


def register(
    kind: str, name: str | None = None, *, preset_of: str = "", **facts: Any
) -> Callable:
    """Returns a decorator that registers a factory under its name in recipes.

    `facts` are properties of the part that are not in its signature, such as the
    defaults of an updater (`policy="sampled"`) or the `time_limit` of an environment.
    `preset_of` names the part that this one is, with other defaults.
    """
    if kind not in KINDS:
        raise ValueError(f"expected a kind among {sorted(KINDS)}, got {kind!r}")

    def decorate(factory: Callable) -> Callable:
        key = (kind, name or factory.__name__)
        existing = _BUILT_IN.get(key)
        if existing is not None and existing.factory.__module__ != factory.__module__:
            other = existing.factory.__module__
            raise ValueError(f"{kind} {key[1]!r} is registered already, by {other}")
        _BUILT_IN[key] = RegisteredPart(
            *key, factory, MappingProxyType(facts), preset_of=preset_of
        )
        return factory

    return decorate


def register_class_adapter(
    kind: str, base: type, *, argument: str = "", **facts: Any
) -> Callable:
    """Returns a decorator for `(name, class) -> factory`, for the subclasses of `base`.

    An import path that names such a class, as in `my_env:MyEnv`, or a function that
    returns its objects becomes that factory. `argument` is the first parameter of
    functions that take one, such as an environment to wrap.
    """

    def decorate(factory: Callable[[str, Callable], Callable]) -> Callable:
        _CLASS_ADAPTERS.append(
            _ClassAdapter(kind, base, factory, MappingProxyType(facts), argument)
        )
        return factory

    return decorate


def parse_kind(word: str, others: Sequence[str] = ()) -> str:
    """Returns the kind of a singular or plural name; an error suggests the nearest.

    `others` are words that the error may suggest, too.
    """
    for kind, plural in KINDS.items():
        if word in (kind, plural):
            return kind
    hint = suggest_name("kind", word, (*KINDS, *others))
    raise RlcliError(f"there is no kind of part {quote(word)}", hint)


def names(kind: str) -> list[str]:
    """The part names of a kind: built-in parts first, then plug-ins."""
    _load_kind(kind)
    # The name of an adapter ends with a slash.
    built_in = sorted(name for part_kind, name in _BUILT_IN if part_kind == kind)
    return built_in + sorted(set(entry_points(kind)) - set(built_in))


def find(kind: str, name: str) -> RegisteredPart:
    """Returns the part with a name.

    The name is a built-in name, an entry point, an import path `module:attribute` or,
    for an environment, `backend/id`. The adapter registered as `backend/` takes the id
    as its first argument. The adapter of a plug-in has an entry point `backend/`, and
    registers itself when it is imported.

    Raises an error for a plug-in or import path that cannot be loaded or is no factory.
    """
    _load_kind(kind)
    backend, slash, rest = name.partition("/")
    adapter = backend + slash
    if slash and (kind, adapter) not in _BUILT_IN and adapter in entry_points(kind):
        plugins.load_plugin(entry_points(kind)[adapter], kind, name)
    if slash and (kind, adapter) in _BUILT_IN:
        adapter = _BUILT_IN[kind, adapter]
        bound = functools.partial(adapter.factory, rest)
        return adapter._replace(name=name, factory=bound)
    if (kind, name) in _BUILT_IN:
        return _BUILT_IN[kind, name]
    if name in entry_points(kind):
        return _plug_in(kind, name)
    if ":" in name:
        factory = plugins.import_factory(kind, name)
        part = _adapt_class(kind, name, factory)
        if part is not None:
            return part
        plugins.check_factory(kind, f"{kind} {quote(name)}", factory)
        facts = _registered_facts(kind, factory)
        return RegisteredPart(kind, name, factory, facts, is_trusted=False)
    hint = suggest_name(kind, name, names(kind))
    raise RlcliError(f"there is no {kind} {quote(name)}", hint)


def is_plug_in(kind: str, name: str) -> bool:
    """Whether a name belongs to an installed plug-in, loaded or not."""
    return name in entry_points(kind)


def _plug_in(kind: str, name: str) -> RegisteredPart:
    entry = entry_points(kind)[name]
    factory = plugins.load_plugin(entry, kind, name)
    facts = _registered_facts(kind, factory)
    label = f"{kind} {quote(name)} of {plugins.source(entry)}"
    adapter = name.endswith("/") or bool(facts.get("adapter"))
    plugins.check_factory(kind, label, factory, adapter=adapter)
    return RegisteredPart(kind, name, factory, facts)


def _adapt_class(kind: str, name: str, factory: Any) -> RegisteredPart | None:
    """The part of a class of another library; None for any other factory."""
    for adapter in _CLASS_ADAPTERS:
        if adapter.kind == kind and adapter.accepts(factory):
            bound = adapter.factory(name, factory)
            return RegisteredPart(kind, name, bound, adapter.facts, is_trusted=False)
    return None


@functools.cache
def _returns(maker: Callable, base: type) -> bool:
    """Whether a function returns an object of this class without arguments."""
    parameters = inspect.signature(maker).parameters.values()
    optional = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    if any(p.default is p.empty and p.kind not in optional for p in parameters):
        return False
    try:
        made = maker()
    # Foreign code; it raises again where it is called with its options.
    except (Exception, SystemExit):  # noqa: BLE001
        return False
    close = getattr(made, "close", None)
    if isinstance(made, base) and close is not None:
        with contextlib.suppress(Exception, SystemExit):
            close()
    return isinstance(made, base)


def _registered_facts(kind: str, factory: Any) -> Mapping[str, Any]:
    """The facts of a factory that its own module registers; empty if it does not."""
    parts = (part for part in _BUILT_IN.values() if part.kind == kind)
    return next((part.facts for part in parts if part.factory is factory), {})


@functools.cache
def _load_kind(kind: str) -> None:
    """Imports every module of the kind's package; the modules register their parts."""
    package = importlib.import_module(f"rlcli.{_KIND_PACKAGES.get(kind, KINDS[kind])}")
    for module in pkgutil.walk_packages(
        getattr(package, "__path__", []), f"{package.__name__}."
    ):
        importlib.import_module(module.name)


@functools.cache
def entry_points(kind: str) -> Mapping[str, importlib.metadata.EntryPoint]:
    """The entry points of installed plug-ins, by the name of their part."""
    found = importlib.metadata.entry_points(group=f"rlcli.{CONTRACT}.{KINDS[kind]}")
    return MappingProxyType({entry_point.name: entry_point for entry_point in found})
