"""Description: a run as text; the function behind `rlcli show`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from rlcli.errors import RlcliError
from rlcli.quoting import printable
from rlcli.recipe import documents
from rlcli.runs import formatting
from rlcli.runs.cell_table import describe_recorded, read_cells
from rlcli.runs.listing import get_nested_value, read_recipe
from rlcli.runs.locate import complete_path, find_shipped_policy, locate_run, owning_run
from rlcli.runs.records import Record, read_record
from rlcli.runs.result import Text
from rlcli.runs.run_folder import SUFFIX, Run
from rlcli.runs.snapshot_content import read_content
from rlcli.runs.study_record import Study, find_study

_LONGEST = 200  # characters of a value


def show(*what: str, set: Sequence[str] = (), diff_from_base: bool = False) -> Text:
    """Returns a recipe with every default, the options of a part, or a run in short.

    `what` is a recipe, the kind and the name of a part, or the folder of a run, or of
    a study, whose returns are shown side by side. `set`
    replaces options of a recipe, such as `train.steps=10_000`. `diff_from_base`: only
    what differs from the recipes that the recipe extends.
    """
    found = _find(what[0], set, diff_from_base) if len(what) == 1 else None
    if isinstance(found, Path):
        return Text(_lines(_policy_fields(read_policy_record(found))))
    if isinstance(found, Study):
        return Text(describe_recorded(found))
    if found is not None:
        return Text(describe_run(read_record(found.folder)))
    from rlcli.recipe import catalog  # here: imports JAX

    return Text(catalog.show_entry(*what, set=set, diff_from_base=diff_from_base))


def show_data(
    what: str, *name: str, set: Sequence[str] = (), diff_from_base: bool = False
) -> dict[str, Any]:
    """The data of `show`: a recipe, or the record of a run with its recipe."""
    if name:
        raise RlcliError(
            "`--json` is for recipes and runs", "`rlcli list --json` lists all parts"
        )
    found = _find(what, set, diff_from_base)
    if isinstance(found, Path):
        return dict(read_policy_record(found))
    if isinstance(found, Study):
        records = zip(found.cells, read_cells(found), strict=True)
        return {"cells": [{"values": dict(c.values), **each} for c, each in records]}
    if found is not None:
        return {**read_record(found.folder), "resolved": read_recipe(found.folder)}
    from rlcli.recipe import catalog  # here: imports JAX

    return catalog.recipe_data(what, set, diff_from_base)


def _find(
    what: str, set: Sequence[str], diff_from_base: bool
) -> Path | Study | Run | None:
    """The policy file, the study or the run of a name; None if it is that of others."""
    if not is_run_path(what):
        return None
    option = "--set" if set else "--diff-from-base" if diff_from_base else ""
    if option:
        raise RlcliError(
            f"`{what}` is a run: `{option}` is for recipes", f"remove `{option}`"
        )
    return find_policy_file(what) or find_study(what) or locate_run(what)


def is_run_path(what: str | Path) -> bool:
    """Whether a name is that of a folder, or of a policy or checkpoint file."""
    path = find_shipped_policy(complete_path(what))
    return path.is_dir() or path.name.endswith(SUFFIX)


def describe_run(record: Record) -> str:
    """A record as lines of text: fields, then what differs from the built-in recipe."""
    lines = _lines(_fields(record)).splitlines()
    changes = record["changes"] or {}
    if changes:
        lines += ["", "options that differ from the recipe file:"]
        width = max(map(len, changes)) + 2
        for key, pair in changes.items():
            before, after = (formatting.format_value(each, _LONGEST) for each in pair)
            lines.append(f"  {key:{width}}{after}  (was {before})")
    return "".join(printable(line).replace("\n", "\\n") + "\n" for line in lines)


def _lines(fields: Iterable[tuple[str, str]]) -> str:
    """Fields as lines of text, without the empty ones."""
    texts = {name: text.replace("\n", "\\n") for name, text in fields if text}
    width = max(map(len, texts)) + 2
    return "".join(f"{name:{width}}{printable(text)}\n" for name, text in texts.items())


def _fields(record: Record) -> Iterator[tuple[str, str]]:
    yield "run", record["run"]
    yield "recipe", record["recipe"] or ""
    yield "name", record["name"] or ""
    yield "tags", ", ".join(record["tags"])
    reason = f": {record['reason']}" if record["reason"] else ""
    yield "status", f"{record['status'] or ''}{reason}"
    if record["steps"] is not None:
        total = f" of {record['total_steps']:,}" if record["total_steps"] else ""
        rate = record["steps_per_second"]
        speed = f", {formatting.format_number(rate)} steps/s" if rate else ""
        smoke = ", smoke" if record["smoke"] else ""
        yield "steps", f"{record['steps']:,}{total}{speed}{smoke}"
    yield "seeds", ", ".join(map(str, record["seeds"] or ()))
    yield "return", formatting.format_return(record["return"])
    yield "init", formatting.format_source(record["init"])
    yield "created", _describe_times(record)
    yield "command", record["command"] or ""


def _policy_fields(record: PolicyRecord) -> Iterator[tuple[str, str]]:
    """The fields of a policy file without a run."""
    yield "file", record["file"]
    yield "kind", record["kind"]
    recipe = record["resolved"]
    for part in ("environment", "updater"):
        yield part, str(get_nested_value(recipe, part, "name", default=""))
    yield "seeds", ", ".join(map(str, record["seeds"]))
    yield "steps", ", ".join(f"{steps:,}" for steps in record["steps"] or ())
    yield "size", f"{record['bytes']:,} bytes"
    yield "sha256", record["sha256"]


def _describe_times(record: Record) -> str:
    created = formatting.parse_time(record["created"])
    if created is None:
        return ""
    age = formatting.format_duration(time.time() - created)
    text = f"{record['created']}, {age} ago"
    ended = formatting.parse_time(record["ended"])
    return f"{text}, ended {record['ended']}" if ended else text


class PolicyRecord(TypedDict):
    """A policy or checkpoint file."""

    file: str
    kind: str  # `policy` or `checkpoint`
    seeds: list[int]
    steps: list[int] | None  # of each seed when its policy was saved
    bytes: int
    sha256: str
    resolved: dict[str, Any]  # the recipe


def find_policy_file(path: str | Path) -> Path | None:
    """The policy or checkpoint file of this name, unless it belongs to a run."""
    file = find_shipped_policy(complete_path(path))
    return file if file.is_file() and owning_run(file) is None else None


def read_policy_record(file: Path) -> PolicyRecord:
    """Reads a policy or checkpoint file."""
    content = read_content(file)
    recipe = documents.load_document(content["recipe"], source=str(file)).data
    return PolicyRecord(
        file=str(file),
        kind=content["kind"],
        seeds=content["seeds"],
        steps=content.get("steps"),
        bytes=file.stat().st_size,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        resolved=dict(recipe),
    )
