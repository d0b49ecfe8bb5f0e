"""Population: the files of runs that are a population, beside their folders.

`population.json` has what is searched, and how. `rounds.jsonl` has a line for each
round of population-based training: which member has copied which other one, and the
numbers of all members afterwards. It is written before a checkpoint of that step or a
later one, so a run that is resumed finds the numbers of its checkpoint.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.runs import files, predicates

FILE_NAME, ROUNDS = "population.json", "rounds.jsonl"


class SearchedOption(NamedTuple):
    """A number of the recipe that changes during training, and its range."""

    key: str
    places: tuple[str, ...]  # of the number in the program, see `Setup.numbers`
    low: float
    high: float
    is_log: bool


class PopulationSettings(NamedTuple):
    """The searched options and the members of a population."""

    members: tuple[str, ...]  # the names of their folders
    seed: int  # of the random numbers of all rounds
    ready: int  # evaluations between two rounds
    options: tuple[SearchedOption, ...]


class RoundEntry(NamedTuple):
    """A member in a round."""

    score: float | None  # of the evaluation; None if it is not finite, or has failed
    copied: str | None  # the member whose state it has copied
    options: Mapping[str, float]  # after the round


class Round(NamedTuple):
    """A round of population-based training."""

    number: int  # from 1
    step: int  # of each seed
    members: Mapping[str, RoundEntry]


class Stage(NamedTuple):
    """A part of the history of a member: itself or an ancestor, and its options."""

    step: int  # after which it begins
    member: str
    options: Mapping[str, float]


def write_settings(folder: Path, settings: PopulationSettings) -> None:
    """Writes the settings of the population of a folder."""
    options = [option._asdict() for option in settings.options]
    files.write_json(folder / FILE_NAME, settings._asdict() | {"options": options})


def read_settings(folder: Path) -> PopulationSettings:
    """The settings of the population of a folder."""
    path = folder / FILE_NAME
    fields = files.read_json(path, files.REMEDY)
    try:
        options = tuple(
            SearchedOption(**each | {"places": tuple(each["places"])})
            for each in fields.pop("options")
        )
        members = tuple(fields.pop("members"))
        settings = PopulationSettings(members=members, options=options, **fields)
    except (KeyError, TypeError) as error:
        raise RlcliError(f"`{path}` is damaged, or missing", files.REMEDY) from error
    if not _is_sound(settings):
        raise RlcliError(f"`{path}` is damaged", files.REMEDY)
    return settings


def _is_sound(settings: PopulationSettings) -> bool:
    """Whether the fields of settings that were read have their types."""
    numbers, texts = [settings.seed, settings.ready], [*settings.members]
    for option in settings.options:
        texts += [option.key, *option.places]
    return (
        all(map(predicates.is_int, numbers))
        and settings.ready >= 1
        and all(map(predicates.is_text, texts))
        and all(
            _is_finite(each.low) and _is_finite(each.high) for each in settings.options
        )
        and all(predicates.is_flag(each.is_log) for each in settings.options)
    )


def _is_finite(value: Any) -> bool:
    return predicates.is_number(value) and math.isfinite(value)


def write_rounds(folder: Path, rounds: Sequence[Round]) -> None:
    """Replaces the rounds of the population of a folder."""
    files.replace_file(folder / ROUNDS, "".join(map(_to_line, rounds)).encode())


def _to_line(each: Round) -> str:
    members = {name: member._asdict() for name, member in each.members.items()}
    fields = {"round": each.number, "step": each.step, "members": members}
    return f"{files.to_json(fields)}\n"


def read_rounds(
    folder: Path, members: Collection[str], options: Collection[str]
) -> list[Round]:
    """The rounds so far; [] before the first.

    `members` are the names of the folders, `options` the keys of the numbers that
    change; refuses rounds of others.
    """
    return files.read_records(
        folder / ROUNDS, lambda fields, _: _parse_round(fields, members, options)
    )


def _parse_round(
    fields: Mapping[str, Any], members: Collection[str], options: Collection[str]
) -> Round:
    """A round; one of `files.DAMAGES` if it is damaged."""
    number, step = fields["round"], fields["step"]
    if type(number) is not int or type(step) is not int or step < 0:
        raise ValueError("`round` and `step` are not whole numbers")
    entries = {name: RoundEntry(**each) for name, each in fields["members"].items()}
    if entries.keys() != {*members}:
        raise ValueError("it has other members than the population")
    for name, (score, copied, values) in entries.items():
        if (score is not None and not _is_finite(score)) or (
            copied is not None and copied not in members
        ):
            raise ValueError(f"the score or the parent of member `{name}`")
        if values.keys() != {*options} or not all(map(_is_finite, values.values())):
            raise ValueError(f"the options of member `{name}`")
    return Round(number, step, entries)


def find_lineage(
    rounds: Sequence[Round], member: str, first: Mapping[str, Mapping[str, float]]
) -> list[Stage]:
    """The history of the state that a member has now, from the first step on.

    `first` are the options of all members at the beginning. A stage begins where the
    options change: at a round in which the member of that time copied another one.
    """
    stages: list[Stage] = []
    for each in reversed(rounds):
        now = each.members[member]
        if now.copied is not None:
            stages.append(Stage(each.step, member, now.options))
            member = now.copied
    stages.append(Stage(0, member, first[member]))
    return stages[::-1]
