"""Update views: the next update of a run of each group, for the page of a report."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlcli.errors import RlcliError
from rlcli.evaluation.inspection.inspect import inspect
from rlcli.evaluation.inspection.inspection_records import headline, tables
from rlcli.results.groups import Group
from rlcli.runs.result import Table


class UpdateView(NamedTuple):
    """What the updater of a run gets and does next."""

    label: str
    color: int
    run: str
    headline: str
    signs: Sequence[str]
    tables: Sequence[Table]


def describe_updates(
    groups: Sequence[Group],
    trust: bool | None,
    notes: list[str],
    report_phase: Callable[[str], None],
) -> list[UpdateView]:
    """The next update of each group's newest run, of its first seed."""
    views = []
    for color, group in enumerate(groups):
        newest = max(group.members, key=lambda each: str(each.info.get("created", "")))
        report_phase(f"inspecting `{newest.folder}`")
        try:
            found = inspect(newest.folder, trust=trust)
        except RlcliError as error:
            notes.append(f"`{newest.folder}` is not inspected: {error.message}")
            continue
        notes += found.notes
        run, shown = str(newest.folder), [*tables(found)]
        view = UpdateView(group.label, color, run, headline(found), found.signs, shown)
        views.append(view)
    return views
