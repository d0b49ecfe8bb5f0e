"""New: copies a built-in recipe to a file that the user edits."""

import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlcli import registry
from rlcli.errors import RlcliError, quote
from rlcli.recipe import find_recipe, shipped_recipes
from rlcli.recipe.documents import format_inline, load_document
from rlcli.recipe.extending import KEY
from rlcli.recipe.merging import as_mapping
from rlcli.recipe.reading import read_without_parts
from rlcli.recipe.schema import FILE, schema
from rlcli.registry.common_names import normalize_name

_COPY = """\
# A copy of `{}` with another environment:
# the results below are those of the original, and its options may not suit.
"""
_KEPT = ("num_envs", "wrappers")  # options of the old environment that the new one has


def new(
    recipe: str | Path,
    *,
    environment: str | None = None,
    output: str | Path | None = None,
) -> Path:
    """Copies a built-in recipe with its comments into a new file; returns its path.

    A comment in the file refers editors to the JSON Schema of recipes,
    `rlcli.schema.json`, which is written beside it unless it exists.

    Args:
        recipe: the name of a built-in recipe.
        environment: replaces the recipe's environment: a name, or the `environment`
            section of a recipe: `{name: Acrobot-v1, num_envs: 4}`.
        output: the new file; by default `<recipe>.yaml`, with the name of the
            environment if that is replaced. An existing file is never overwritten.
    """
    path = find_recipe(recipe)
    if path not in shipped_recipes().values():
        base = format_inline(str(path))
        raise RlcliError(
            f"{quote(path)} is not a built-in recipe",
            f"create a file with `extends: {base}` and the options that differ",
        )
    name, text = path.stem, path.read_text(encoding="utf-8")
    if environment is not None:
        old = as_mapping(read_without_parts(path).data["environment"])
        section = _read_environment(environment)
        text = _COPY.format(name) + _replace_environment(text, old, section)
        name = _rename(name, old["name"], section["name"])
    target = Path(f"{name}.yaml" if output is None else output)
    _write_new(target, text)
    if not os.path.lexists(target.parent / FILE):  # also true for a broken link
        schema(output=target.parent / FILE)
    return target


def _read_environment(environment: str) -> dict[str, Any]:
    """The section of an environment; an error if there is none of that name."""
    text = f"environment: {environment}"
    section = load_document(text, "--environment").data["environment"]
    section = section if isinstance(section, Mapping) else {"name": section}
    if not isinstance(section.get("name"), str):
        message = f"--environment: `{environment}` is not the name of an environment"
        raise RlcliError(message, "for example `--environment Acrobot-v1`")
    registry.find("environment", section["name"])
    return dict(section)


def _replace_environment(
    text: str, old: Mapping[str, Any], section: Mapping[str, Any]
) -> str:
    """The text of a recipe with another environment; all other text is unchanged."""
    kept = {key: old[key] for key in _KEPT if key in old}
    value = format_inline({"name": section["name"]} | kept | dict(section))
    span = _find_value(text, "environment")
    if span is None:  # it is that of an extended recipe
        _, end = _find_value(text, KEY) or (0, 0)
        return f"{text[:end]}\nenvironment: {value}{text[end:]}"
    start, end = span
    return f"{text[:start]}{value}{text[end:]}"


def _find_value(text: str, key: str) -> tuple[int, int] | None:
    """The first and the last character of the value of a key at the top level."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    values = {name.value: value for name, value in root.value}
    if key not in values:
        return None
    node = last = values[key]
    while isinstance(last, yaml.CollectionNode) and not last.flow_style and last.value:
        # A block ends at the next one, behind comments that may not belong to it.
        item = last.value[-1]
        last = item[1] if isinstance(item, tuple) else item
    return node.start_mark.index, last.end_mark.index


def _rename(recipe: str, old: str, environment: str) -> str:
    """The name of a recipe with another environment: `dqn_cartpole` to `dqn_acrobot`.

    The name of a built-in recipe ends with words that spell its environment.
    """
    words = recipe.split("_")
    suffixes = itertools.accumulate(
        reversed(words[1:]), lambda end, word: f"{word}_{end}"
    )
    matching = [end for end in suffixes if normalize_name(end) in normalize_name(old)]
    begin = recipe.removesuffix(f"_{matching[-1]}") if matching else recipe
    short = re.sub(r"-v\d+$", "", environment.rpartition(":")[2])
    slug = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", short)).lower()
    return f"{begin}_{slug.strip('_')}"


def _write_new(target: Path, text: str) -> None:
    """Writes a file that does not exist yet, and the folders above it."""
    hint = "choose another file with `--output`"
    if os.path.lexists(target):
        raise RlcliError(f"`{target}` exists already", hint)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RlcliError(
            f"`{target}` cannot be written: {error.strerror}", hint
        ) from error
