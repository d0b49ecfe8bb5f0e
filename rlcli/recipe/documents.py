"""Documents: YAML text with line numbers, read from anybody safely.

A document is plain data (dicts, lists, strings, numbers, booleans, None) that knows on
which line each of its values was written. Nothing of a text is ever called, imported or
expanded without bound: recipes come out of checkpoints that others made.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import sys
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rlcli.errors import RlcliError, quote, shorten

MAX_BYTES = 1_000_000  # bytes of a file
MAX_VALUES = 20_000  # after aliases are expanded
MAX_NESTING = 50  # nested mappings and lists
LONGEST_SET, LONGEST_PATH = 80, 200  # characters in messages
LARGEST_NUMBER = sys.float_info.max  # of integers, too: every option may be a float

Place = tuple[str | int, ...]  # ("train", "log", "every")

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Without YAML 1.1's surprises: 1e-3 is a number, 010 is ten, 1:30 and dates are text.
_RESOLVERS = (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"(?i:true|false|yes|no|on|off)", [*"tTfFyYnNoO"]),
    ("int", r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F_]+", [*"-+0123456789"]),
    (
        "float",
        r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?i:inf)|\.(?i:nan)",
        [*"-+.0123456789"],
    ),
)


class _ResolverMixin:
    """Which plain scalars are more than text, for reading and writing alike."""

    yaml_implicit_resolvers: typing.ClassVar[dict] = {}


for _tag, _pattern, _first in _RESOLVERS:
    for _character in _first:
        _ResolverMixin.yaml_implicit_resolvers.setdefault(_character, []).append(
            (f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"))
        )


class _Reader(_ResolverMixin, _Loader):  # pyright: ignore[reportGeneralTypeIssues] chosen
    """PyYAML's parser; values are constructed here, not by it."""


class _Writer(_ResolverMixin, yaml.SafeDumper):
    """PyYAML's emitter; quotes what would be read back as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class Document:
    """Data and where it was written."""

    data: Any
    source: str = ""  # a file's name, or "" where there is none
    lines: Mapping[Place, int] = dataclasses.field(default_factory=dict)
    origins: Mapping[Place, str] = dataclasses.field(default_factory=dict)  # `--set …`
    text: str = ""  # as written, before anything was set

    def line_of(self, place: Place) -> int | None:
        """The line of a value, or of the innermost one around it that has a line."""
        for length in range(len(place), -1, -1):
            if place[:length] in self.lines:
                return self.lines[place[:length]]
        return None

    def where(self, place: Place = ()) -> str:
        """How an error message about a value begins: `file:line: `, or nothing."""
        for length in range(len(place), -1, -1):
            if place[:length] in self.origins:
                return f"{self.origins[place[:length]]}: "
            if place[:length] in self.lines:
                break
        line = self.line_of(place)
        if line is None:
            return f"{self.source}: " if self.source else ""
        return f"{self.source}:{line}: " if self.source else f"line {line}: "


def load_document(text_or_path: str | Path, source: str = "") -> Document:
    """Reads a YAML text, or the file of a `Path`: a mapping, with its lines."""
    if isinstance(text_or_path, Path):
        source = source or str(text_or_path)
        text = _read_text(text_or_path)
    else:
        text = text_or_path
        _refuse_long(len(text), source)
    document = _parse(text, source)
    if document.data is None:
        raise RlcliError(
            f"{_location(source, 1)}the file is empty", "a recipe has sections"
        )
    if not isinstance(document.data, dict):
        kind = "a list" if isinstance(document.data, list) else "a single value"
        hint = "it is a mapping, such as `environment: {name: CartPole-v1}`"
        raise RlcliError(f"{document.where()}expected a mapping, got {kind}", hint)
    return dataclasses.replace(document, text=text)


def from_mapping(data: Mapping[str, Any], source: str = "") -> Document:
    """A document of plain data that somebody made in Python; keys become text."""
    return Document(_plain(data), source)


def merge(document: Document, sets: Sequence[str]) -> Document:
    """The document with values replaced: each of `sets` reads `a.b.c=value`.

    Values are YAML. Below a part written as a bare name, `NAME` becomes `{name: NAME}`.
    """
    data = _plain(document.data)
    lines, origins = dict(document.lines), dict(document.origins)
    for setting in sets:
        dotted_key, equals, text = setting.partition("=")
        origin = f"--set {quote(setting, LONGEST_SET)[1:-1]}"
        _refuse_long(len(setting), origin)
        keys = dotted_key.strip().split(".")
        if not equals or not all(keys):
            hint = "such as `--set train.steps=10_000`"
            raise RlcliError(f"{origin}: expected `key=value`", hint)
        if len(keys) > MAX_NESTING:
            raise RlcliError(f"{origin}: nested more than {MAX_NESTING} deep")
        value = _parse(text, origin).data
        place = _set_value(data, keys, value, origin)
        for records in (lines, origins):
            for inner in [key for key in records if key[: len(place)] == place]:
                del records[inner]
        origins[place] = origin
        data = _plain(data)  # which refuses what several of them have made too large
    return dataclasses.replace(document, data=data, lines=lines, origins=origins)


def dump_yaml(data: Any) -> str:
    """YAML for people: small values on one line, in braces; larger ones indented."""
    if not isinstance(data, Mapping) or not data:
        return f"{format_inline(data)}\n"
    return "".join(f"{line}\n" for line in _format_block(data, 0))


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise RlcliError(
                f"{quote(path, LONGEST_PATH)} is a folder, not a file",
                "name the file in it",
            )
        if not path.exists():
            raise RlcliError(f"there is no file {quote(path, LONGEST_PATH)}")
        if not path.is_file():
            raise RlcliError(f"{quote(path, LONGEST_PATH)} is no ordinary file")
        _refuse_long(path.stat().st_size, str(path))
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        reason = getattr(error, "strerror", None) or error
        raise RlcliError(
            f"{quote(path, LONGEST_PATH)} cannot be read: {reason}"
        ) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        message = f"{_location(str(path), line)}the file is not UTF-8 text"
        raise RlcliError(message, "save it as UTF-8") from error


def _refuse_long(size: int, source: str) -> None:
    if size > MAX_BYTES:
        prefix = f"{source}: " if source else ""
        message = f"{prefix}{size:,} bytes are more than a recipe's {MAX_BYTES:,}"
        raise RlcliError(message, "is it a recipe?")


def _parse(text: str, source: str) -> Document:
    try:
        _refuse_deep(text, source)
        root = yaml.compose(text, Loader=_Reader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise _syntax_error(text, source, line, error.problem or str(error)) from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise _syntax_error(text, source, line, error.reason) from error
    if root is None:
        return Document(None, source, {(): 1})
    builder = _Builder(source)
    return Document(builder.value(root, ()), source, builder.lines)


def _refuse_deep(text: str, source: str) -> None:
    # Events come one by one; composing recurses in C, and would overflow the stack.
    depth = 0
    for event in yaml.parse(text, Loader=_Reader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_NESTING:
            place = _location(source, event.start_mark.line + 1)
            raise RlcliError(f"{place}nested more than {MAX_NESTING} deep")


def _syntax_error(text: str, source: str, line: int, problem: str) -> RlcliError:
    lines = text.splitlines()
    for number in (line, line - 1):  # the parser may notice one line late
        if 0 < number <= len(lines) and re.match(r"\s*\t", lines[number - 1]):
            message = (
                f"{_location(source, number)}a tab, which YAML does not indent with"
            )
            return RlcliError(message, "replace it by spaces")
    if line <= len(lines) and "\t" in lines[line - 1]:
        return RlcliError(
            f"{_location(source, line)}{problem}", "there is a tab: use spaces"
        )
    return RlcliError(f"{_location(source, line)}{problem}", "it is not YAML")


def _location(source: str, line: int) -> str:
    if source.startswith("--set"):
        return f"{source}: "
    return f"{source}:{line}: " if source else f"line {line}: "


class _Builder:
    """Makes plain data of PyYAML's nodes, and notes lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[Place, int] = {}
        self.count = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.lines.setdefault(place, node.start_mark.line + 1)
        self.count += 1
        # An alias is expanded where it stands: few bytes may mean billions of values.
        if self.count > MAX_VALUES or len(place) > MAX_NESTING:
            message = f"more than {MAX_VALUES:,} values, or an alias within itself"
            raise self.error(node, message, "use fewer aliases")
        tag = node.tag.removeprefix("tag:yaml.org,2002:")
        if isinstance(node, yaml.MappingNode) and tag == "map":
            return self.mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and tag == "seq":
            items = enumerate(node.value)
            return [self.value(item, (*place, index)) for index, item in items]
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, tag)
        raise self.error(
            node, f"the tag {quote(node.tag)} is not for recipes", "leave it"
        )

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode) or key in ("", "~", "<<"):
                hint = "keys are words, such as `name: value`"
                raise self.error(key_node, "this cannot be a key", hint)
            line = key_node.start_mark.line + 1
            if key in result:
                message = f"the key {quote(key)} is on line {first_lines[key]} already"
                raise self.error(key_node, message, "keep one of the two")
            first_lines[key] = line
            self.lines[(*place, key)] = line
            result[key] = self.value(value_node, (*place, key))
        return result

    def scalar(self, node: yaml.ScalarNode, tag: str) -> Any:
        text = node.value
        try:
            if tag == "null":
                return None
            if tag == "bool":
                return text.lower() in ("true", "yes", "on")
            if tag == "int":
                return _int(text)
            if tag == "float":
                return _float(text)
        except ValueError as error:
            message = f"{quote(text)} is no number, or too large for a float"
            raise self.error(node, message) from error
        if tag == "str":
            return text
        raise self.error(
            node, f"the tag {quote(node.tag)} is not for recipes", "leave it"
        )

    def error(self, node: yaml.Node, message: str, hint: str = "") -> RlcliError:
        place = _location(self.source, node.start_mark.line + 1)
        return RlcliError(f"{place}{message}", hint)


def _int(text: str) -> int:
    bare = text.replace("_", "")
    value = int(bare, 16) if bare[:2] == "0x" else int(bare)
    if abs(value) > LARGEST_NUMBER:
        raise ValueError("too large for a float")
    return value


def _float(text: str) -> float:
    bare = text.replace("_", "").lower()
    if bare.endswith((".inf", ".nan")):
        return float(bare.replace(".", ""))
    value = float(bare)
    if math.isinf(value):
        raise ValueError("too large for a float")
    return value


def _plain(value: Any) -> Any:
    """A deep copy in dicts, lists and plain values; keys become text."""
    counter = itertools.count()

    def copy(value: Any, place: Place) -> Any:
        # What comes out of a checkpoint may hold one list many times, or itself.
        if next(counter) > MAX_VALUES or len(place) > MAX_NESTING:
            raise RlcliError(
                f"more than {MAX_VALUES:,} values, or {MAX_NESTING} levels"
            )
        if isinstance(value, Mapping):
            items = ((str(key), item) for key, item in value.items())
            return {key: copy(item, (*place, key)) for key, item in items}
        if isinstance(value, list | tuple):
            return [copy(each, (*place, i)) for i, each in enumerate(value)]
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            where = quote(".".join(map(str, place)))
            raise RlcliError(f"{where}: the number is too large for a float")
        return value

    return copy(value, ())


def _set_value(data: Any, keys: list[str], value: Any, origin: str) -> Place:
    """Puts a value into nested data, and says where that was."""
    place = (_resolve_step(data, keys[0], "", origin),)
    for depth, key in enumerate(keys[1:], 1):
        parent = data
        parent_path = ".".join(keys[:depth])
        data = parent[place[-1]] if isinstance(parent, list) else parent.get(place[-1])
        if data is None or isinstance(data, str):
            data = {} if data is None else {"name": data}
        elif not isinstance(data, dict | list):
            message = (
                f"{quote(parent_path)} is {shorten(repr(data))}, which has no options"
            )
            raise RlcliError(f"{origin}: {message}")
        parent[place[-1]] = data
        place = (*place, _resolve_step(data, key, parent_path, origin))
    data[place[-1]] = value
    return place


def _resolve_step(data: Any, key: str, parent_path: str, origin: str) -> Any:
    """The key of a mapping, or the index of a list, that a word of `--set` means."""
    if not isinstance(data, list):
        return key
    index = int(key) if key.isdecimal() and len(key) < 10 else len(data)
    if index >= len(data):
        hint = f"it has {len(data)} entries, counted from 0"
        message = f"{quote(parent_path)} has no entry {quote(key)}"
        raise RlcliError(f"{origin}: {message}", hint)
    return index


def format_inline(value: Any) -> str:
    """YAML on one line."""
    try:
        text = yaml.dump(
            value,
            Dumper=_Writer,
            default_flow_style=True,
            sort_keys=False,
            allow_unicode=False,  # some unicode is a line's end to YAML
            width=math.inf,
        )
    except yaml.representer.RepresenterError as error:
        kind = type(error.args[-1]).__name__
        message = f"a value of type `{kind}` cannot be written in a recipe"
        raise RlcliError(
            message, "use plain numbers, text, lists and mappings"
        ) from error
    return text.removesuffix("\n").removesuffix("\n...")


def _format_block(data: Mapping[str, Any], indent: int) -> list[str]:
    lines = []
    for key, value in data.items():
        begin = f"{' ' * indent}{format_inline(str(key))}:"
        line = f"{begin} {format_inline(value)}"
        if isinstance(value, Mapping) and value and len(line) > 88:
            lines += [begin, *_format_block(value, indent + 2)]
        else:
            lines.append(line)
    return lines
