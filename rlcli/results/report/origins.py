"""Provenance: the recipes of runs, their differences, and their origin."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.results.groups import Group, Member
from rlcli.runs import formatting
from rlcli.runs.differences import PROVENANCE
from rlcli.runs.listing import read_recipe
from rlcli.runs.records import read_record
from rlcli.trackers import flatten_config

_LONGEST = 200  # characters of a value
_LONGEST_DIFF = 20_000  # characters of a git diff
MISSING = "–"


class OptionRow(NamedTuple):
    """An option of a recipe. `origin` is `default`, `recipe` or `changed`."""

    key: str
    value: str
    origin: str
    before: str  # of a changed one


class RecipeTable(NamedTuple):
    """The resolved recipe of a group: its options by section."""

    label: str
    color: int
    sections: Mapping[str, Sequence[OptionRow]]


class Difference(NamedTuple):
    """An option or a fact that is not the same in all columns."""

    key: str
    values: Sequence[str]


class RunFacts(NamedTuple):
    """Where a run comes from."""

    name: str
    color: int
    status: str
    facts: Sequence[tuple[str, str]]
    code: Sequence[tuple[str, str]]  # file, SHA-256
    diff: str


def describe_recipes(groups: Sequence[Group]) -> list[RecipeTable]:
    """The recipe of each group, that of its first run with a readable one."""
    tables = []
    for index, group in enumerate(groups):
        readable = [member for member in group.members if member.recipe]
        if readable:
            sections = _describe_recipe(readable[0])
            tables.append(RecipeTable(group.label, index, sections))
    return tables


def find_option_differences(groups: Sequence[Group]) -> list[Difference]:
    """The options in which the recipes of groups differ; a value of each group."""
    recipes = [
        next((_flatten(m.recipe) for m in group.members if m.recipe), {})
        for group in groups
    ]
    found = []
    for each in _compare(recipes):
        section = each.key.partition(".")[0]
        first, *others = (recipe.get(f"{section}.name") for recipe in recipes)
        is_same = all(name == first for name in others)
        if MISSING not in each.values or is_same:  # else of another part
            found.append(each)
    return found


def find_machine_differences(members: Sequence[Member]) -> list[Difference]:
    """The facts about machines and versions in which runs differ."""
    facts = []
    for member in members:
        fields = {key: member.info.get(key) for key in PROVENANCE}
        if isinstance(fields.get("git"), Mapping):
            fields["git"] = _describe_git(fields["git"])
        facts.append(_flatten(fields))
    return _compare(facts)


def describe_runs(groups: Sequence[Group]) -> list[RunFacts]:
    """Where each run comes from."""
    return [
        _describe_run(member, index)
        for index, group in enumerate(groups)
        for member in group.members
    ]


def _flatten(value: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of nested mappings by dotted key; a schedule is a leaf."""
    return dict(
        flatten_config(value, is_leaf=lambda each: not each or _is_schedule(each))
    )


def _is_schedule(value: Mapping[str, Any]) -> bool:
    return {"from", "to"} <= value.keys()


def _describe_recipe(member: Member) -> dict[str, list[OptionRow]]:
    written = _flatten(read_recipe(member.folder, as_written=True))
    changes = member.info.get("changes") or {}
    sections: dict[str, list[OptionRow]] = {}
    for key, value in _flatten(member.recipe).items():
        section, _, rest = key.partition(".")
        # A name alone stands for a part: `environment: CartPole-v1`.
        is_written = key in written or (rest == "name" and section in written)
        is_written |= any(key.startswith(f"{each}.") for each in written if "." in each)
        origin = "recipe" if is_written else "default"
        before = [
            pair[0]
            for changed, pair in changes.items()
            if changed == key or changed.startswith(f"{key}.")
        ]
        if before:
            origin = "changed"
        was = ", ".join(map(_format, before))
        option = OptionRow(rest or section, _format(value), origin, was)
        sections.setdefault(section, []).append(option)
    return sections


def _compare(columns: Sequence[Mapping[str, Any]]) -> list[Difference]:
    keys = dict.fromkeys(key for column in columns for key in column)
    found = []
    for key in keys:
        values = [
            _format(column[key]) if key in column else MISSING for column in columns
        ]
        if len({*values}) > 1:
            found.append(Difference(key, values))
    return found


def _describe_run(member: Member, color: int) -> RunFacts:
    info, record = member.info, read_record(member.folder)
    seeds = ", ".join(map(str, record["seeds"] or ()))
    steps = record["steps"]
    rate = record["steps_per_second"]
    facts = {
        "Status": ": ".join(filter(None, (record["status"], record["reason"]))),
        "Return": formatting.format_return(record["return"]),
        "Steps": "" if steps is None else f"{steps:,} of each seed",
        "Speed": "" if not rate else f"{formatting.format_number(rate)} steps/s",
        "Seeds": seeds,
        "Frozen seeds": ", ".join((info.get("frozen") or {}).keys()),
        "Tags": ", ".join(record["tags"] or ()),
        "Started from": _describe_source(record["init"]),
        "Created": record["created"] or "",
        "Ended": record["ended"] or "",
        "Command": record["command"] or "",
        "Resumed": ", ".join(str(each.get("time")) for each in info.get("resumes", ())),
        "Platform": info.get("platform", ""),
        "Processor": info.get("processor", ""),
        "Devices and threads": _join(info.get("layout")),
        "Cores": _join(info.get("cores")),
        "Python": info.get("python", ""),
        "Versions": _join(info.get("versions")),
        "Git": _describe_git(info.get("git")),
    }
    code = [
        (str(name), str(entry.get("sha256", "")))
        for name, entry in (info.get("code") or {}).items()
        if isinstance(entry, Mapping)
    ]
    git = info.get("git")
    diff = str(git.get("diff") or "") if isinstance(git, Mapping) else ""
    if len(diff) > _LONGEST_DIFF:
        diff = diff[:_LONGEST_DIFF] + "\n… (cut)"
    shown = [(name, str(text)) for name, text in facts.items() if text]
    return RunFacts(str(member.folder), color, str(record["status"]), shown, code, diff)


def _describe_source(init: Any) -> str:
    """The file that a run has started from, without the folders of this machine."""
    if not isinstance(init, Mapping):
        return ""
    name = str(init.get("file")).rpartition("/")[2]
    return formatting.format_source({**init, "file": name})


def _describe_git(git: Any) -> str:
    if not isinstance(git, Mapping):
        return ""
    text = f"commit {git.get('commit')}"
    return f"{text}, with uncommitted changes" if git.get("diff") else text


def _join(fields: Any) -> str:
    if not isinstance(fields, Mapping):
        return ""
    return ", ".join(f"{name} {value}" for name, value in fields.items())


def _format(value: Any) -> str:
    if isinstance(value, Mapping) and _is_schedule(value):
        others = {key: each for key, each in value.items() if key not in ("from", "to")}
        kind = others.pop("name", "")
        words = [f"{key} {_format(each)}" for key, each in others.items()]
        return " ".join([formatting.format_value(value, _LONGEST), str(kind), *words])
    return formatting.format_value(value, _LONGEST) if value != "" else '""'
