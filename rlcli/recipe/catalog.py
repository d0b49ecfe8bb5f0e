"""Catalog: the parts that recipes can name, and their options."""

import builtins
import contextlib
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.recipe import dump_recipe, load_bases, load_recipe, resolve, shipped_recipes
from rlcli.recipe.annotations import describe_annotation, describe_fields
from rlcli.recipe.documents import format_inline
from rlcli.recipe.grammar import format_default
from rlcli.recipe.merging import find_changes
from rlcli.registry import KINDS, parse_kind

_TRAITS = ("backend", "renders", "action", "observation")  # of an environment


def list(kind: str | None = None) -> dict[str, builtins.list[dict[str, str]]]:
    """Lists parts and recipes by kind: names, and the first lines of their docstrings.

    Returns `{"environments": [{"name", "summary"}], …, "recipes": […]}`, or only one
    kind, named in singular or plural. Environments also have, with their default
    options: `backend`, `jax` if compiled with the agent, else `host`; `renders`, what
    a frame contains, a `drawing` or the `observation`; and their `action` and
    `observation` spaces.
    """
    if kind in ("recipe", "recipes"):
        return {"recipes": _list_recipes()}
    if kind is not None:
        parsed_kind = parse_kind(kind, ["recipe"])
        return {KINDS[parsed_kind]: _list_parts(parsed_kind)}
    parts = {KINDS[kind_name]: _list_parts(kind_name) for kind_name in KINDS}
    return parts | {"recipes": _list_recipes()}


def show_entry(
    *what: str, set: Sequence[str] = (), diff_from_base: bool = False
) -> str:
    """Returns a recipe with every default, or the options of a part (`kind, name`).

    `set` replaces options of the recipe, such as `train.steps=10_000`.
    `diff_from_base`: only what differs from the recipes that the recipe extends.
    """
    if len(what) == 2 and what[0] in ("recipe", "recipes"):
        what = what[1:]
    if len(what) == 1:
        return dump_recipe(recipe_data(what[0], set, diff_from_base))
    if len(what) != 2 or set or diff_from_base:
        message = "`show` takes a recipe, or the kind and the name of a part"
        raise RlcliError(message, "for example `rlcli show updater q_learning`")
    return _describe_part(registry.find(parse_kind(what[0]), what[1]))


def recipe_data(
    recipe: str, set: Sequence[str] = (), diff_from_base: bool = False
) -> dict[str, Any]:
    """A recipe as plain data; see `show_entry`."""
    data = resolve(load_recipe(recipe, set))
    return find_changes(resolve(load_bases(recipe)), data) if diff_from_base else data


def _list_parts(kind: str) -> builtins.list[dict[str, str]]:
    return [_list_entry(kind, name) for name in registry.names(kind)]


def _list_entry(kind: str, name: str) -> dict[str, str]:
    """The list entry of a name; for a plug-in that cannot be loaded, the reason.

    That of an adapter stands for all its ids.
    """
    try:
        part = registry.find(kind, name)
    except RlcliError as error:
        if not registry.is_plug_in(kind, name):
            raise
        entry = {"name": name, "summary": f"broken: {error.message}"}
        return entry | (dict.fromkeys(_TRAITS, "?") if kind == "environment" else {})
    name = f"{part.name}ID" if part.name.endswith("/") else part.name
    summary = _docstring(part.factory).partition("\n")[0]
    if part.preset_of:
        summary = f"{summary.removesuffix('.')} (preset of `{part.preset_of}`)."
    entry = {"name": name, "summary": summary}
    return entry | (_environment_traits(part) if part.kind == "environment" else {})


def _environment_traits(part: registry.RegisteredPart) -> dict[str, str]:
    """An environment's backend, rendering and default spaces.

    `?` where the spaces depend on data or on an id.
    """
    from rlcli.spaces import describe  # here: imports JAX
    from rlcli.types import missing_render

    library = part.name.partition("/")[0] + "/"
    is_hosted = bool(part.facts.get("adapter"))
    observation = action = "?"
    drawing = "observation" if library in registry.names(part.kind) else "drawing"
    if part.name != library:
        external = not part.is_trusted or registry.is_plug_in(part.kind, part.name)
        with contextlib.suppress(Exception if external else RlcliError):
            offers = {"num_envs": 1, "seeds": 1, "time_limit": "default"}
            offers |= {"timeout": None, "rendering": False}
            environment = registry.call_factory(part.factory, offers, {})
            observation = describe(environment.observation)
            action = describe(environment.action)
            if environment.render is missing_render:
                drawing = "observation"
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
    """The comment on the first line of a recipe, which summarizes it."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _docstring(factory: Any) -> str:
    """The docstring of a factory, also of an adapter's that is bound to an id."""
    return inspect.getdoc(getattr(factory, "func", factory)) or ""


def _describe_part(part: registry.RegisteredPart) -> str:
    """A part's name, options with types and defaults, and docstring."""
    lines = [f"{part.kind} {part.name}", ""]
    if part.preset_of:
        lines += [f"preset of: {format_inline(_expand_preset(part))}", ""]
    for path, hint, default in describe_options(part):
        value = "" if default is None else f" = {default}"
        lines.append(f"{'  ' * len(path)}{path[-1]}: {hint}{value}")
    # Functions, which an adapter may have, are no defaults.
    facts = {name: fact for name, fact in part.facts.items() if not callable(fact)}
    if facts and part.kind != "wrapper":
        lines += ["", "defaults for other sections:"]
        lines += [f"  {name}: {format_inline(fact)}" for name, fact in facts.items()]
    if part.kind == "environment":
        lines += ["", "with default options:"]
        lines += [
            f"  {name}: {trait}" for name, trait in _environment_traits(part).items()
        ]
    lines += ["", _docstring(part.factory)]
    return "\n".join(lines).rstrip() + "\n"


def describe_options(
    part: registry.RegisteredPart,
) -> Iterator[tuple[tuple[str, ...], str, str | None]]:
    """Path, type and default (None: required) of all options, also within options."""
    for name, parameter in registry.options(part.factory).items():
        default = None
        if parameter.default is not inspect.Parameter.empty:
            default = format_default(parameter.default)
        yield (name,), describe_annotation(parameter.annotation), default
        for key, hint in describe_fields(parameter.annotation).items():
            yield (name, key), hint, None


def _expand_preset(part: registry.RegisteredPart) -> dict[str, Any] | str:
    """What a preset stands for: the part behind it, and the options that differ."""
    base = registry.options(registry.find(part.kind, part.preset_of).factory)
    changes = {
        name: parameter.default
        for name, parameter in registry.options(part.factory).items()
        if parameter.default != base[name].default
    }
    return {"name": part.preset_of, **changes} if changes else part.preset_of
