"""Parts: what the page of a board asks for, as data, computed again if runs changed."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError, quote
from rlcli.results.board.film_files import list_films
from rlcli.results.board.live_series import SeriesCache
from rlcli.results.board.run_index import Entry, RunIndex, stamp_of
from rlcli.results.board.study_cells import describe_study
from rlcli.results.checks import check_choice
from rlcli.results.curves import X_FIELDS
from rlcli.results.groups import Group, Member, group_members, read_member
from rlcli.results.plot import CENTERS
from rlcli.results.report import learning, origins
from rlcli.results.report.page import to_plain
from rlcli.runs.formatting import format_changes
from rlcli.runs.listing import parse_condition, select
from rlcli.runs.metric_labels import describe_metric, label_metric
from rlcli.runs.records import Record

_MOST_GROUPS = 16  # with curves: there are eight colours
_MOST_RUNS = 30  # with their provenance, or films
_KEPT = 64  # parts
_LOAD = 9  # times as long as describing studies takes until they are again
_HAS_SIGN = re.compile("[=<>]")
Part = dict[str, Any]  # of the document
_TEXTS = ("run", "recipe", "name", "status")  # in which words of a filter are found


class Selection(NamedTuple):
    """Which runs a part shows, and how."""

    runs: tuple[str, ...] = ()  # ids; () for all that match the filter
    filter: str = ""
    y: str | None = None
    x: str = "steps"
    center: str = "mean"
    group: str | None = None
    range: tuple[float, float] | None = None

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> "Selection":
        """The selection in the fields of an address; an error for wrong ones."""
        x, center = query.get("x", "steps"), query.get("center", "mean")
        check_choice("x", x, tuple(X_FIELDS))
        check_choice("center", center, CENTERS)
        ends = query.get("range")
        try:
            low, high = map(float, ends.split(",")) if ends else (0.0, 0.0)
        except ValueError as error:
            raise RlcliError(f"`range` cannot be {quote(ends)}") from error
        return cls(
            tuple(filter(None, query.get("runs", "").split(","))),
            query.get("filter", ""),
            query.get("y") or None,
            x,
            center,
            query.get("group") or None,
            (low, high) if low < high else None,
        )


class PartMaker:
    """Makes the parts of the document of a board."""

    def __init__(self, index: RunIndex) -> None:
        self._index, self._series = index, SeriesCache()
        self._studies: Sequence[Mapping[str, Any]] = ()
        self._version = self._studied = 0
        self._next = 0.0  # time at which studies may be described again
        self._members: dict[Path, tuple[Any, Member]] = {}
        self._made: dict[tuple[str, Selection], tuple[Any, Mapping[str, Any]]] = {}
        self._parts: Mapping[str, Callable[[Selection, list[str]], Part]] = {
            "learning": self._describe_learning,
            "diagnostics": lambda *selected: {
                "learning": self._learn(*selected, has_results=False)[1]
            },
            "recipes": self._describe_recipes,
            "provenance": self._describe_provenance,
            "films": self._list_films,
        }

    def list_runs(self, filter: str, known: int, studied: int) -> dict[str, Any]:
        """The runs that match a filter, and the rows that changed since a version.

        Also the studies, if they were described more often than `studied`.
        """
        self._index.refresh()
        index = self._index
        found: dict[str, Any] = {
            "version": index.version,
            "total": len(index.entries),
            "ids": [each.id for each in self._match(filter)],
            "rows": [_row(e) for e in index.entries.values() if e.version > known],
        }
        if studied < self._describe_studies():
            found |= {"studies": self._studies, "studied": self._studied}
        return found

    def _describe_studies(self) -> int:
        """Describes the studies again, if that is due; how often that was done."""
        index, begin = self._index, time.monotonic()
        if index.version != self._version and begin >= self._next:
            records = {each.folder: each.record for each in index.entries.values()}
            self._studies = [describe_study(s, records) for s in index.studies]
            self._version, self._studied = index.version, self._studied + 1
            self._next = time.monotonic() + _LOAD * (time.monotonic() - begin)
        return self._studied

    def make(self, name: str, selection: Selection) -> Mapping[str, Any]:
        """A part of the document, with its `notes`."""
        if name not in self._parts:
            raise RlcliError(f"there is no part {quote(name)}")
        self._index.refresh()
        entries = self._select(selection)
        state = [(each.id, each.stamp) for each in entries]
        before = self._made.pop((name, selection), None)
        if before is None or before[0] != state:
            lost = len({*selection.runs}) - len(entries)
            notes = [f"{lost} of the selected runs are gone"] if lost > 0 else []
            data = self._parts[name](selection, notes)
            data["notes"] = [*dict.fromkeys(notes)]
            before = state, to_plain(data)
        self._made[name, selection] = before  # the latest are last
        while len(self._made) > _KEPT:
            del self._made[next(iter(self._made))]
        return before[1]

    def _match(self, filter: str) -> list[Entry]:
        """The runs that have all words of a filter, and satisfy its conditions."""
        entries = self._index.entries.values()
        records = [each.record for each in entries]
        for word in filter.split():
            if _HAS_SIGN.search(word):
                records = select(records, parse_condition(word))
            else:
                records = [each for each in records if _has_word(each, word)]
        kept = {each["run"] for each in records}
        return [each for each in entries if each.record["run"] in kept]

    def _select(self, selection: Selection) -> list[Entry]:
        if not selection.runs:
            return self._match(selection.filter)
        entries = self._index.entries
        return [entries[id] for id in selection.runs if id in entries]

    def _groups(self, selection: Selection, notes: list[str]) -> list[Group]:
        """The groups of the selected runs, at most as many as can be told apart."""
        members = [self._read_member(each.folder) for each in self._select(selection)]
        serious = [each for each in members if not each.info.get("smoke")]
        groups = group_members(serious or members, selection.group)
        if len(groups) > _MOST_GROUPS:
            notes.append(
                f"the first {_MOST_GROUPS} of {len(groups)} groups: select runs, or "
                "filter them, to see others"
            )
        return groups[:_MOST_GROUPS]

    def _read_member(self, folder: Path) -> Member:
        stamp = stamp_of(folder)
        without_metrics = (stamp[0], stamp[3])
        known = self._members.get(folder)
        if known is None or known[0] != without_metrics:
            known = self._members[folder] = without_metrics, read_member(folder)
        return known[1]

    def _describe_learning(self, selection: Selection, notes: list[str]) -> Part:
        groups, found = self._learn(selection, notes, has_diagnostics=False)
        read = self._series.read
        members = (member for group in groups for member in group.members)
        names = {name for each in members for name in read(each.folder, ()).metrics}
        return {
            "labels": [group.label for group in groups],
            "center": selection.center,
            "learning": found,
            "metrics": [
                {"name": n, "label": label_metric(n), "meaning": describe_metric(n)}
                for n in sorted(names - {"T", "seed"})
            ],
        }

    def _learn(
        self, selection: Selection, notes: list[str], **without: bool
    ) -> tuple[list[Group], list[learning.Learning]]:
        groups = self._groups(selection, notes)
        if not groups:
            return [], []
        _, _, y, x, center, _, x_range = selection
        options = learning.MetricOptions(y, center, None, x, x_range, **without)
        self._series.begin([m.folder for group in groups for m in group.members])
        found = learning.describe_learning(groups, options, notes, self._series.read)
        notes += self._series.notes
        return groups, found

    def _describe_recipes(self, selection: Selection, notes: list[str]) -> Part:
        groups = self._groups(selection, notes)
        return {
            "labels": [group.label for group in groups],
            "recipes": origins.describe_recipes(groups),
            "recipe_differences": origins.find_option_differences(groups),
        }

    def _describe_provenance(self, selection: Selection, notes: list[str]) -> Part:
        groups, left = [], _MOST_RUNS
        found = self._groups(selection, notes)
        for group in found:
            groups.append(Group(group.label, group.members[:left]))
            left -= len(groups[-1].members)
        _note_cut(sum(len(group.members) for group in found), notes)
        members = [member for group in groups for member in group.members]
        return {
            "runs": origins.describe_runs(groups),
            "machine_differences": origins.find_machine_differences(members),
        }

    def _list_films(self, selection: Selection, notes: list[str]) -> Part:
        entries = self._select(selection)
        _note_cut(len(entries), notes)
        found = [
            {"id": each.id, "run": each.record["run"], "names": list_films(each.folder)}
            for each in entries[:_MOST_RUNS]
        ]
        return {"films": [each for each in found if each["names"]]}


def _note_cut(count: int, notes: list[str]) -> None:
    if count > _MOST_RUNS:
        notes.append(
            f"the first {_MOST_RUNS} of {count} runs: select others to see them"
        )


def _has_word(record: Record, word: str) -> bool:
    texts = [*(record[name] for name in _TEXTS), *record["tags"]]
    return any(word.casefold() in str(text).casefold() for text in texts if text)


def _row(entry: Entry) -> dict[str, Any]:
    """What the table of the page shows of a run."""
    record, result = entry.record, entry.record["return"]
    names = ("run", "recipe", "name", "tags", "status", "smoke", "steps", "created")
    return {name: record[name] for name in names} | {
        "id": entry.id,
        "changes": format_changes(record["changes"]),
        "reason": str(record["reason"] or "").partition("\n")[0],
        "total": record["total_steps"],
        "speed": record["steps_per_second"],
        "seeds": len(record["seeds"] or ()),
        "return": result and result["iqm"],
        "interval": result and result["ci95"],
        "source": result and result["source"],
    }
