"""Groups: runs whose seeds belong together, such as all runs of one recipe.

The seeds of all runs of a group are its sample. A run that repeats a seed of another
run with the same recipe is no further evidence, so it counts once.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError, quote
from rlcli.runs.differences import find_differences
from rlcli.runs.formatting import format_changes, format_number_of, format_value
from rlcli.runs.listing import MISSING, find_runs, find_value, read_recipe, select_runs
from rlcli.runs.locate import complete_path, locate_run
from rlcli.runs.naming import shorten_keys
from rlcli.runs.run_folder import Run

# Options of `train` that do not change what a seed learns.
_IRRELEVANT = (
    *("seed", "seeds", "devices", "data_parallel", "threads", "log", "checkpoint"),
    *("evaluate", "trackers", "on_error"),
)
ENVIRONMENT = "environment"  # a key of the values of a cell
_WITHIN = (ENVIRONMENT, "train.seed")  # what may differ among the runs of a group
_LONGEST = 60  # characters of a value as a label
RECIPE, RUN, CELL = "recipe", "run", "cell"  # special values of `group`


class Member(NamedTuple):
    """A run of a group."""

    folder: Path
    info: Mapping[str, Any]  # `run.json`; {} if it cannot be read
    recipe: Mapping[str, Any]  # the resolved recipe; {} if it cannot be read

    @property
    def name(self) -> str:
        """The name of the recipe."""
        return str(self.info.get("recipe") or self.folder.absolute().parent.name)

    @property
    def environment(self) -> str | None:
        """Its environment, by the name in its study; None if it is unknown."""
        environment = self.recipe.get(ENVIRONMENT)
        if isinstance(environment, Mapping):
            environment = environment.get("name")
        own = self.cell[1].get(ENVIRONMENT) if self.cell is not None else None
        found = own if isinstance(own, str) else environment
        return found if isinstance(environment, str) else None

    @property
    def cell(self) -> tuple[str, Mapping[str, str]] | None:
        """The folder of its study, and what tells it from the others; None without."""
        cell: Any = self.info.get("cell")
        try:
            *outer, _ = Path(cell["label"]).parts
            study = self.folder.absolute().parents[len(outer)]
            return str(study), dict(cell["values"])
        except (TypeError, KeyError, ValueError, IndexError):  # none, or damaged
            return None

    @property
    def identity(self) -> str:
        """Equal for runs whose seeds learn the same, as far as their recipes say it."""
        if not self.recipe:
            return str(self.folder)
        return json.dumps([self.name, _relevant(self.recipe)], default=str)


class Group(NamedTuple):
    """Runs that are one curve of a plot, or one row of a comparison."""

    label: str
    members: Sequence[Member]

    def within(self, environment: str | None) -> "Group":
        """Its runs in an environment, whose results are in the same unit."""
        found = [each for each in self.members if each.environment == environment]
        return Group(self.label, found)


def find_members(
    paths: str | Path | Sequence[str | Path],
    notes: list[str],
    filter: Sequence[str] = (),
    tag: Sequence[str] = (),
) -> list[Member]:
    """The runs at or below paths, each once; a path without a run is an error.

    Only those that satisfy the conditions `filter` and have the tags, as in
    `rlcli.runs`.

    Smoke runs among others in a folder are left out, with a note. Runs with frozen
    seeds have a note: without failed seeds, results would look better than they are.
    """
    paths = [paths] if isinstance(paths, (str, Path)) else paths
    if not paths:
        raise RlcliError("no runs are given", "pass run folders, such as `runs/*/*`")
    found = [member for path in paths for member in _members_at(path, notes)]
    members = [*{member.folder.resolve(): member for member in found}.values()]
    if filter or tag:
        records = select_runs([member.folder for member in members], filter, tag)
        kept = {record["run"] for record in records}
        members = [member for member in members if str(member.folder) in kept]
        if not members:
            raise RlcliError(
                "no run matches `--filter` and `--tag`",
                "`rlcli runs --filter KEY=VALUE` lists the runs that match",
            )
    for member in members:
        if frozen := member.info.get("frozen"):
            noun = "seed" if len(frozen) == 1 else "seeds"
            seeds = ", ".join(sorted(frozen, key=lambda seed: (len(seed), seed)))
            notes.append(f"`{member.folder}`: {noun} {seeds} frozen (NaN), included")
    return members


def _members_at(path: str | Path, notes: list[str]) -> list[Member]:
    complete = complete_path(path)
    folders = sorted(find_runs(complete)) if complete.is_dir() else []
    folders = folders or [locate_run(path).folder]  # or an error that names the path
    members = [read_member(folder) for folder in folders]
    serious = [member for member in members if not member.info.get("smoke")]
    if not serious or len(serious) == len(members):
        return members
    count = len(members) - len(serious)
    runs = format_number_of(count, "smoke run")
    notes.append(f"{runs} in `{path}` left out; name the folder of one to include it")
    return serious


def read_member(folder: Path) -> Member:
    """The run in a folder; what cannot be read is empty."""
    try:
        info = Run(folder).read_info()
    except RlcliError:  # a damaged file: the metrics may still be sound
        info = {}
    return Member(folder, info, read_recipe(folder))


def group_members(members: Sequence[Member], group: str | None = None) -> list[Group]:
    """Groups runs, in their order.

    `group` is `recipe`: the same recipe with the same options; `run`: every run by
    itself; `cell`: the same cell of a study in all its environments; or a field or an
    option of the recipe, such as `name` or `updater.name`. By default `cell` if all
    runs are those of one study, else `recipe`.
    """
    if group is None:
        studies = {member.cell[0] if member.cell else "" for member in members}
        group = CELL if len(studies) == 1 and "" not in studies else RECIPE
    if group == RUN:
        return [Group(str(member.folder), [member]) for member in members]
    if group == CELL:
        return _group_cells(members)
    keys: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        key = member.identity if group == RECIPE else _value_of(member, group)
        keys[key].append(member)
    firsts = [each[0] for each in keys.values()]
    if group == RECIPE:
        labels = _recipe_labels(firsts)
        names = [first.folder.name for first in firsts]
        longer = [f"{each} ({name})" for each, name in zip(labels, names, strict=True)]
    else:
        labels = [_shorten(_find(first, group)) for first in firsts]
        longer = [*keys]
    return _make_groups([*keys.values()], labels, longer)


def _make_groups(
    found: Sequence[Sequence[Member]], *labels: Sequence[str]
) -> list[Group]:
    """Groups of members, each with the first of its labels that no other one has.

    Those without such a label have the folder of their first run behind the last one.
    """
    pairs = zip(labels[-1], found, strict=True)
    chosen = [f"{label} ({members[0].folder})" for label, members in pairs]
    for level in reversed(labels):
        for place, label in enumerate(level):
            if level.count(label) == 1:
                chosen[place] = label
    return [*map(Group, chosen, found)]


CellKey = tuple[tuple[str, str], ...]  # what tells the group of a cell from others


def find_cell_key(recipe: str, values: Mapping[str, str]) -> CellKey:
    """The recipe and the options of a cell, without its environment and seeds."""
    named = {"recipe": recipe, **values}
    return tuple(pair for pair in named.items() if pair[0] not in _WITHIN)


def label_cells(keys: Sequence[CellKey]) -> list[str]:
    """The labels of the groups of a study, given their keys."""
    options = [*dict.fromkeys(option for key in keys for option, _ in key)]
    names = dict(zip(options, shorten_keys(options), strict=True))
    words = (
        [text if o == "recipe" else f"{names[o]}={text}" for o, text in key]
        for key in keys
    )
    return [*map(" ".join, words)]


def _group_cells(members: Sequence[Member]) -> list[Group]:
    """Groups the cells of studies that differ in nothing but the environment."""
    groups: dict[tuple[str, CellKey], list[Member]] = defaultdict(list)
    for member in members:
        if member.cell is None:
            message = f"run `{member.folder}` is no cell of a study"
            raise RlcliError(message, "group by `recipe` or `run`")
        study, values = member.cell
        groups[study, find_cell_key(member.name, values)].append(member)
    labels = label_cells([key for _, key in groups])
    studies = [study for study, _ in groups]
    pairs = [*zip(studies, labels, strict=True)]
    longer = [f"{study}: {label}" for study, label in pairs]
    if len({*studies}) > 1:
        labels = [f"{Path(study).name}: {label}" for study, label in pairs]
    return _make_groups([*groups.values()], labels, longer)


def _value_of(member: Member, key: str) -> str:
    """The value of a field or an option, complete: equal for equal values only."""
    value = _find(member, key)
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, default=str)


def _shorten(value: Any) -> str:
    is_list = isinstance(value, list)
    return ", ".join(map(str, value)) if is_list else format_value(value, _LONGEST)


def _find(member: Member, key: str) -> Any:
    record = {**member.info, "run": str(member.folder)}
    value = find_value(record, key)
    if value is MISSING:
        raise RlcliError(
            f"run `{member.folder}` has no {quote(key)} to group by",
            "group by `recipe`, `run`, `name`, or by an option that all recipes have",
        )
    if value is None or value == []:
        raise RlcliError(
            f"`{key}` of run `{member.folder}` is empty, so it has no group",
            "`rlcli train --name NAME` names a run; or group by `recipe` or `run`",
        )
    return value


def _recipe_labels(members: Sequence[Member]) -> list[str]:
    """The name of each recipe, with the options that differ among those of a name."""
    by_name: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        by_name[member.name].append(member)
    labels = []
    for member in members:
        options: dict[str, Sequence[Any]] = {}
        for other in by_name[member.name]:
            pair = _relevant(other.recipe), _relevant(member.recipe)
            options |= find_differences(*pair)
        labels.append(" ".join([member.name, *format_changes(options)]))
    return labels


def _relevant(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe without the options that do not change what a seed learns."""
    train = recipe.get("train")
    if not isinstance(train, Mapping):
        return dict(recipe)
    kept = {key: value for key, value in train.items() if key not in _IRRELEVANT}
    return {**recipe, "train": kept}
