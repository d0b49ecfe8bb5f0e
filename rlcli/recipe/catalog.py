"""Catalog: the parts that recipes can name, and the options that they take."""

from __future__ import annotations

import builtins
import contextlib
import inspect
from pathlib import Path
from typing import Any

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.recipe import dump_recipe, load_recipe, resolve, shipped_recipes
from rlcli.recipe.annotations import describe_annotation
from rlcli.registry import KINDS, parse_kind
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
        return {"recipes": _list_recipes()}
    if kind is not None:
        parsed_kind = parse_kind(kind)
        return {KINDS[parsed_kind]: _list_parts(parsed_kind)}
    return {KINDS[kind_name]: _list_parts(kind_name) for kind_name in KINDS} | {
        "recipes": _list_recipes()
    }


def show(*what: str) -> str:
    """A recipe with every default filled in; or, of `kind, name`, what a part takes."""
    if len(what) == 1:
        return dump_recipe(resolve(load_recipe(what[0])))
    if len(what) != 2:
        raise RlcliError(
            "`show` takes a recipe, or a kind and a name",
            "such as `rlcli show updater q_learning`",
        )
    return _describe_part(registry.find(parse_kind(what[0]), what[1]))


def _list_parts(kind: str) -> builtins.list[dict[str, str]]:
    return [_listed(kind, name) for name in registry.names(kind)]


def _listed(kind: str, name: str) -> dict[str, str]:
    """What the list says of a name; of a plug-in that is broken, why it is."""
    try:
        return _list_entry(registry.find(kind, name))
    except RlcliError as error:
        if not registry.is_plug_in(kind, name):
            raise
        entry = {"name": name, "summary": f"broken: {error.message}"}
        return entry | (dict.fromkeys(_TRAITS, "?") if kind == "environment" else {})


def _list_entry(part: registry.RegisteredPart) -> dict[str, str]:
    """What the list says of a part; of an adapter for any of its ids."""
    name = f"{part.name}ID" if part.name.endswith("/") else part.name
    entry = {"name": name, "summary": _summary_line(part.factory)}
    return entry | (_environment_traits(part) if part.kind == "environment" else {})


def _environment_traits(part: registry.RegisteredPart) -> dict[str, str]:
    """What an environment is by default; `?` where that takes data, or an id."""
    library = part.name.partition("/")[0] + "/"
    is_hosted = bool(part.facts.get("adapter"))
    observation = action = "?"
    if part.name != library:
        plug_in = registry.is_plug_in(part.kind, part.name)
        with contextlib.suppress(Exception if plug_in else RlcliError):
            environment = (
                part.factory(1, 1, "default", None) if is_hosted else part.factory()
            )
            observation, action = (
                describe(environment.observation),
                describe(environment.action),
            )
    drawing = "observation" if library in registry.names(part.kind) else "drawing"
    return {  # the widest last
        "backend": "host" if is_hosted else "jax",
        "renders": "drawing or observation" if is_hosted else drawing,
        "action": action,
        "observation": observation,
    }


def _list_recipes() -> builtins.list[dict[str, str]]:
    return [
        {"name": name, "summary": _first_comment(path)}
        for name, path in shipped_recipes().items()
    ]


def _first_comment(path: Path) -> str:
    """The first line of a recipe, which says what it does."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _summary_line(factory: Any) -> str:
    return _docstring(factory).partition("\n")[0]


def _docstring(factory: Any) -> str:
    """What a factory says of itself; an adapter's, which is bound to an id, as well."""
    return inspect.getdoc(getattr(factory, "func", factory)) or ""


def _describe_part(part: registry.RegisteredPart) -> str:
    """What a part takes: name, options with type and default, what it fills in."""
    lines = [f"{part.kind} {part.name}", ""]
    for name, parameter in registry.options(part.factory).items():
        default = ""
        if parameter.default is not inspect.Parameter.empty:
            default = f" = {_format_value(parameter.default)}"
        lines.append(f"  {name}: {describe_annotation(parameter.annotation)}{default}")
    if part.facts:
        lines += ["", "unless the recipe says otherwise:"]
        lines += [
            f"  {name}: {_format_value(fact)}" for name, fact in part.facts.items()
        ]
    if part.kind == "environment":
        lines += ["", "by default:"]
        lines += [
            f"  {name}: {trait}" for name, trait in _environment_traits(part).items()
        ]
    lines += ["", _docstring(part.factory)]
    return "\n".join(lines).rstrip() + "\n"


def _format_value(value: Any) -> str:
    """A value as a recipe has it, in one line."""
    return dump_recipe({"": value}).removeprefix("'':").strip() if value != "" else "''"
