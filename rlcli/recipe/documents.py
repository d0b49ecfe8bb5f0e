"""Documents: YAML with line numbers, safe for untrusted input.

A document is plain data (dicts, lists, strings, numbers, booleans, None) with the line
of each value. Parsing never calls or imports anything, and expansion is bounded:
checkpoints of other users contain recipes.
"""

import dataclasses
import itertools
import math
import os
import re
import sys
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rlcli.errors import RlcliError, quote
from rlcli.registry.paths import enter, open_file
from rlcli.replays.datasets.names import HASH, shipped_folder

MAX_BYTES = 1_000_000  # of a file
MAX_VALUES = 20_000  # after the expansion of aliases
MAX_NESTING = 50  # nested mappings and lists
LARGEST_NUMBER = sys.float_info.max  # also for integers: any option may be a float

Place = tuple[str | int, ...]  # ("train", "log", "every")

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Deviates from YAML 1.1: 1e-3 is a number, 010 is ten, 1:30 and dates are strings.
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


class _Reader(_Loader):  # pyright: ignore[reportGeneralTypeIssues] chosen
    """PyYAML's parser; `_Builder` constructs the values."""

    yaml_implicit_resolvers: typing.ClassVar[dict] = {}


class _Writer(yaml.SafeDumper):
    """PyYAML's emitter; quotes strings that would be read back as other types."""

    yaml_implicit_resolvers: typing.ClassVar[dict] = {}

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.Node:
        """A string on one line: other quotes would contain its line breaks."""
        style = '"' if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Writer.add_representer(str, _Writer.represent_text)
_FORMS = {tag: re.compile(rf"(?:{pattern})\Z") for tag, pattern, _ in _RESOLVERS}
for _tag, _, _first in _RESOLVERS:
    for _class in (_Reader, _Writer):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _FORMS[_tag], _first)


class Mark(NamedTuple):
    """Where a value was written."""

    file: str  # or the setting that replaces the value, `--set a.b=1`; "" for data
    line: int | None = None
    is_setting: bool = False

    @property
    def prefix(self) -> str:
        """The beginning of an error message about the value: `file:line: `, or ""."""
        if self.line is None or self.file.startswith("--set"):
            return f"{self.file}: " if self.file else ""
        return f"{self.file}:{self.line}: " if self.file else f"line {self.line}: "


@dataclasses.dataclass(frozen=True)
class Document:
    """Plain data with the places where it was written."""

    data: Any
    source: str = ""  # a file name; "" if there is none
    marks: Mapping[Place, Mark] = dataclasses.field(default_factory=dict)
    text: str = ""  # as written, before `--set`

    def find_mark(self, place: Place) -> Mark:
        """The mark of a value, or of the innermost value around it."""
        around = (place[:length] for length in range(len(place), -1, -1))
        marks = (self.marks[each] for each in around if each in self.marks)
        return next(marks, Mark(self.source))

    def where(self, place: Place = ()) -> str:
        """The beginning of an error message about a value: `file:line: `, or ""."""
        mark = self.find_mark(place)
        if place and place not in self.marks and not mark.is_setting:
            marks = self.marks.items()  # of what `--set a.b=…` has created around it
            inner = (m for p, m in marks if m.is_setting and p[: len(place)] == place)
            mark = next(inner, mark)
        return mark.prefix


def load_document(
    text_or_path: str | Path, source: str = "", *, example: str = ""
) -> Document:
    """Reads a mapping with its lines from a YAML text, or from the file of a `Path`.

    `example`: the hint if there is no file or mapping, unless it is that of a recipe.
    """
    if isinstance(text_or_path, Path):
        source = source or str(text_or_path)
        text = _read_text(text_or_path, example)
    else:
        text = text_or_path
        refuse_long(len(text), source)
    document = parse(text, source)
    if document.data is None:
        raise RlcliError(
            f"{Mark(source, 1).prefix}the file is empty",
            example or "a recipe needs at least `environment` and `updater`",
        )
    if not isinstance(document.data, dict):
        kind = "a list" if isinstance(document.data, list) else "a single value"
        hint = "a recipe is a mapping, such as `environment: {name: CartPole-v1}`"
        message = f"{document.where()}expected a mapping, got {kind}"
        raise RlcliError(message, example or hint)
    return dataclasses.replace(document, text=text)


def from_mapping(data: Mapping[str, Any]) -> Document:
    """A document of plain Python data; keys become strings."""
    return Document(copy_plain(data))


def find_file(document: Document, place: Place, text: str, suffix: str = "") -> str:
    """The absolute path of a file that a recipe names, with the rest of the option.

    The path is relative to the file where it is written, and with `--set` or without a
    file to the current folder. A file that comes with rlcli keeps its relative path,
    so that the recipe of a run does not depend on where rlcli is installed; its name
    may omit `suffix`.
    """
    name, mark, rest = text.partition(HASH)
    written = document.find_mark(place)
    is_below_file = written.file and not written.is_setting
    path = enter((Path(written.file).parent if is_below_file else Path()) / name)
    shipped = shipped_folder()
    names = shipped / name, shipped / f"{name}{suffix}"
    is_there = os.path.exists(path)
    if any(map(os.path.exists, names)) and not is_there:
        return text
    if path.is_relative_to(shipped) and is_there:
        path = path.relative_to(shipped)
    return f"{path}{mark}{rest}"


def dump_yaml(data: Any) -> str:
    """Formats data as readable YAML: small values inline, larger ones indented."""
    if not isinstance(data, Mapping) or not data:
        return f"{format_inline(data, is_ascii=True)}\n"
    return "".join(f"{line}\n" for line in _format_block(data, 0))


def _read_text(path: Path, example: str = "") -> str:
    try:
        if path.is_dir():
            hint = "pass a file of the folder"
            raise RlcliError(f"{quote(path)} is a folder, not a file", hint)
        refuse_long(path.stat().st_size, str(path))
        with open_file(path) as file:
            content = file.read(MAX_BYTES + 1) or b""
        refuse_long(len(content), str(path))
    except FileNotFoundError as error:
        raise RlcliError(f"there is no file {quote(path)}", example) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        reason = getattr(error, "strerror", None) or error
        raise RlcliError(f"{quote(path)} cannot be read: {reason}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        message = f"{Mark(str(path), line).prefix}the file is not UTF-8 text"
        raise RlcliError(message, "save it as UTF-8") from error


def refuse_long(size: int, source: str) -> None:
    """Refuses a text with more bytes than a recipe may have."""
    if size > MAX_BYTES:
        prefix = f"{source}: " if source else ""
        message = f"{prefix}{size:,} bytes exceed a recipe's limit of {MAX_BYTES:,}"
        raise RlcliError(message, "check that this is a recipe")


def parse(text: str, source: str) -> Document:
    """Any YAML value with its lines; `source` names the text in error messages."""
    text = str(text)  # PyYAML's parser in C takes no subclass, such as that of `show`
    try:
        text.encode()
    except UnicodeEncodeError as error:  # bytes of a command line that are not UTF-8
        prefix = f"{source}: " if source else ""
        raise RlcliError(f"{prefix}the text is not UTF-8") from error
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
        return Document(None, source, {(): Mark(source, 1)})
    builder = _Builder(source)
    return Document(builder.value(root, ()), source, builder.marks)


def _refuse_deep(text: str, source: str) -> None:
    # Events are a flat stream; composing recurses in C, and could overflow the stack.
    depth = 0
    problem = f"nested more than {MAX_NESTING} deep"
    try:
        for event in yaml.parse(text, Loader=_Reader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_NESTING:
                place = Mark(source, event.start_mark.line + 1).prefix
                raise RlcliError(f"{place}{problem}")
    except yaml.MarkedYAMLError as error:
        # PyYAML 6.0.4 reads ahead, and has a limit of its own, of 1 000.
        if "maximum nesting" not in (error.problem or ""):
            raise
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RlcliError(f"{Mark(source, line).prefix}{problem}") from error


def _syntax_error(text: str, source: str, line: int, problem: str) -> RlcliError:
    lines = text.splitlines()
    for number in (line, line - 1):  # the parser may report the next line
        if 0 < number <= len(lines) and re.match(r"\s*\t", lines[number - 1]):
            prefix, hint = Mark(source, number).prefix, "replace it with spaces"
            return RlcliError(f"{prefix}YAML does not allow a tab as indent", hint)
    hint = "this is not valid YAML"
    if line <= len(lines) and "\t" in lines[line - 1]:
        hint = "the line contains a tab: replace it with spaces"
    return RlcliError(f"{Mark(source, line).prefix}{problem}", hint)


class _Builder:
    """Builds plain data from PyYAML's nodes, and marks where it is written."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.marks: dict[Place, Mark] = {}
        self.count = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.marks.setdefault(place, self.mark(node))
        self.count += 1
        # Aliases are expanded: a few bytes can expand to billions of values.
        if self.count > MAX_VALUES or len(place) > MAX_NESTING:
            message = f"more than {MAX_VALUES:,} values, or a recursive alias"
            raise self.error(node, message, "use fewer aliases")
        tag = node.tag.removeprefix("tag:yaml.org,2002:")
        if isinstance(node, yaml.MappingNode) and tag == "map":
            return self.mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and tag == "seq":
            items = enumerate(node.value)
            return [self.value(item, (*place, index)) for index, item in items]
        if not isinstance(node, yaml.ScalarNode) or tag not in _SCALARS:
            message = f"recipes do not support the tag {quote(node.tag)}"
            raise self.error(node, message, "remove the tag")
        if tag in _FORMS and not _FORMS[tag].match(node.value):
            message = f"{quote(node.value)} is not what its tag `!!{tag}` says"
            raise self.error(node, message, "remove the tag")
        try:
            return _SCALARS[tag](node.value)
        except ValueError as error:
            message = f"{quote(node.value)} is not a number, or too large for a float"
            raise self.error(node, message) from error

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode) or key in ("", "~", "<<"):
                hint = "keys are strings, such as `name: value`"
                raise self.error(key_node, "this cannot be a key", hint)
            if key in result:
                first = self.marks[(*place, key)].line
                message = f"duplicate key {quote(key)}, first on line {first}"
                raise self.error(key_node, message, "remove one of the two")
            self.marks[(*place, key)] = self.mark(key_node)
            result[key] = self.value(value_node, (*place, key))
        return result

    def error(self, node: yaml.Node, message: str, hint: str = "") -> RlcliError:
        return RlcliError(f"{self.mark(node).prefix}{message}", hint)

    def mark(self, node: yaml.Node) -> Mark:
        return Mark(self.source, node.start_mark.line + 1)


def _int(text: str) -> int:
    digits = text.replace("_", "")
    value = int(digits, 16) if digits[:2] == "0x" else int(digits)
    if abs(value) > LARGEST_NUMBER:
        raise ValueError("too large for a float")
    return value


def _float(text: str) -> float:
    digits = text.replace("_", "").lower()
    if digits.endswith((".inf", ".nan")):
        return float(digits.replace(".", ""))
    value = float(digits)
    if math.isinf(value):
        raise ValueError("too large for a float")
    return value


_SCALARS: Mapping[str, Callable[[str], Any]] = {  # by the tag of YAML
    "null": lambda text: None,
    "bool": lambda text: text.lower() in ("true", "yes", "on"),
    "int": _int,
    "float": _float,
    "str": str,
}


def copy_plain(value: Any) -> Any:
    """A deep copy as dicts, lists and plain values; keys become strings."""
    counter = itertools.count()
    numpy = sys.modules.get("numpy")  # its scalars exist only where it is imported

    def copy(value: Any, place: Place) -> Any:
        # Data from a checkpoint may contain one list many times, or a cycle.
        if next(counter) > MAX_VALUES or len(place) > MAX_NESTING:
            raise RlcliError(
                f"the recipe has more than {MAX_VALUES:,} values, or more than "
                f"{MAX_NESTING} levels"
            )
        if isinstance(value, Mapping):
            items = ((str(key), item) for key, item in value.items())
            return {key: copy(item, (*place, key)) for key, item in items}
        if isinstance(value, list | tuple):
            return [copy(item, (*place, i)) for i, item in enumerate(value)]
        value = value.item() if numpy and isinstance(value, numpy.generic) else value
        if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            where = quote(".".join(map(str, place)))
            raise RlcliError(f"{where}: the number is too large for a float")
        return value

    return copy(value, ())


def format_inline(value: Any, *, is_ascii: bool = False) -> str:
    """Formats a value as YAML on one line; `is_ascii` for a file or stream."""
    try:
        text = yaml.dump(
            value,
            Dumper=_Writer,
            default_flow_style=True,
            sort_keys=False,
            allow_unicode=not is_ascii,
            width=math.inf,
        ).removesuffix("\n")
    except yaml.representer.RepresenterError as error:
        kind = type(error.args[-1]).__name__
        message = f"a value of type `{kind}` cannot be written in a recipe"
        raise RlcliError(message, "use numbers, strings, lists and mappings") from error
    text = text.removesuffix("\n...")
    # YAML treats some characters as line breaks, and others are not visible.
    is_shown = is_ascii or text.isprintable()
    return text if is_shown else format_inline(value, is_ascii=True)


def _format_block(data: Mapping[str, Any], indent: int) -> list[str]:
    lines = []
    for key, value in data.items():
        begin = f"{' ' * indent}{format_inline(str(key), is_ascii=True)}:"
        line = f"{begin} {format_inline(value, is_ascii=True)}"
        if isinstance(value, Mapping) and value and len(line) > 88:
            lines += [begin, *_format_block(value, indent + 2)]
        else:
            lines.append(line)
    return lines
