"""Catalog: the parts that recipes can name, and the options that they take."""

from __future__ import annotations

import builtins
import contextlib
import inspect
from pathlib import Path
from typing import Any

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.recipe import dump, load, resolved, shipped
from rlcli.recipe.annotations import expected
from rlcli.registry import KINDS, kind_of
from rlcli.spaces import describe

_TRAITS = ("backend", "renders", "action", "observation")  # of an environment


def list(kind: str | None = None) -> dict[str, builtins.list[dict[str, str]]]:
    """What there is, by kind: names, and the first line of what they say of themselves.

    `{"environments": [{"name", "summary"}], …, "recipes": […]}`; one kind if named, in
    singular or plural. Environments say as well what they are, as they are by default:
    `backend`, `jax` if compiled with the agent, else `host`; what of them `renders`, a
    `drawing` or the `observation`; and `action` and `observation`, their spaces.
    """
    if kind in ("recipe", "recipes"):
        return {"recipes": _recipes()}
    if kind is not None:
        known = kind_of(kind)
        return {KINDS[known]: _parts(known)}
    return {KINDS[each]: _parts(each) for each in KINDS} | {"recipes": _recipes()}


def show(*what: str) -> str:
    """A recipe with every default filled in; or, of `kind, name`, what a part takes."""
    if len(what) == 1:
        return dump(resolved(load(what[0])))
    if len(what) != 2:
        raise RlcliError(
            "`show` takes a recipe, or a kind and a name",
            "such as `rlcli show updater q_learning`",
        )
    return _part(registry.find(kind_of(what[0]), what[1]))


def _parts(kind: str) -> builtins.list[dict[str, str]]:
    return [_listed(kind, name) for name in registry.names(kind)]


def _listed(kind: str, name: str) -> dict[str, str]:
    """What the list says of a name; of a plug-in that is broken, why it is."""
    try:
        return _entry(registry.find(kind, name))
    except RlcliError as error:
        if not registry.is_plug_in(kind, name):
            raise
        entry = {"name": name, "summary": f"broken: {error.message}"}
        return entry | (dict.fromkeys(_TRAITS, "?") if kind == "environment" else {})


def _entry(part: registry.Registered) -> dict[str, str]:
    """What the list says of a part; of an adapter for any of its ids."""
    name = f"{part.name}ID" if part.name.endswith("/") else part.name
    said = {"name": name, "summary": _summary(part.factory)}
    return said | (_traits(part) if part.kind == "environment" else {})


def _traits(part: registry.Registered) -> dict[str, str]:
    """What an environment is by default; `?` where that takes data, or an id."""
    library = part.name.partition("/")[0] + "/"
    hosted = bool(part.facts.get("adapter"))
    observation = action = "?"
    if part.name != library:
        plug_in = registry.is_plug_in(part.kind, part.name)
        with contextlib.suppress(Exception if plug_in else RlcliError):
            made = part.factory(1, 1, "default", None) if hosted else part.factory()
            observation, action = describe(made.observation), describe(made.action)
    drawn = "observation" if library in registry.names(part.kind) else "drawing"
    return {  # the widest last
        "backend": "host" if hosted else "jax",
        "renders": "drawing or observation" if hosted else drawn,
        "action": action,
        "observation": observation,
    }


def _recipes() -> builtins.list[dict[str, str]]:
    return [
        {"name": name, "summary": _comment(path)} for name, path in shipped().items()
    ]


def _comment(path: Path) -> str:
    """The first line of a recipe, which says what it does."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _summary(factory: Any) -> str:
    return _document(factory).partition("\n")[0]


def _document(factory: Any) -> str:
    """What a factory says of itself; an adapter's, which is bound to an id, as well."""
    return inspect.getdoc(getattr(factory, "func", factory)) or ""


def _part(part: registry.Registered) -> str:
    """What a part takes: name, options with type and default, what it fills in."""
    lines = [f"{part.kind} {part.name}", ""]
    for name, parameter in registry.options(part.factory).items():
        default = ""
        if parameter.default is not inspect.Parameter.empty:
            default = f" = {_written(parameter.default)}"
        lines.append(f"  {name}: {expected(parameter.annotation)}{default}")
    if part.facts:
        lines += ["", "unless the recipe says otherwise:"]
        lines += [f"  {name}: {_written(fact)}" for name, fact in part.facts.items()]
    if part.kind == "environment":
        lines += ["", "by default:"]
        lines += [f"  {name}: {trait}" for name, trait in _traits(part).items()]
    lines += ["", _document(part.factory)]
    return "\n".join(lines).rstrip() + "\n"


def _written(value: Any) -> str:
    """A value as a recipe has it, in one line."""
    return dump({"": value}).removeprefix("'':").strip() if value != "" else "''"
