"""References: the returns that scores normalize to 0 and 1, by environment.

Those of the native environments are in `references.json`, which `python -m
benchmarks.references` writes, with the options at which they were measured.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from rlcli.errors import RlcliError, quote
from rlcli.results.curves import DEFAULT_METRICS
from rlcli.results.groups import Member
from rlcli.runs.metric_labels import choose_best
from rlcli.runs.study_record import REFERENCE, find_study

ALL = ""  # in references of the user: environments that are not named
HINT = (
    "write the returns that become 0 and 1: `22,475`, or for a single environment "
    "`CartPole-v1=22,475`"
)
_LARGEST = sys.float_info.max
_NO_TASK = {"name", "num_envs", "wrappers"}  # options that do not change the task


class Reference(NamedTuple):
    """The returns that are normalized to 0 and 1."""

    low: float
    high: float

    def normalize(self, values: Any) -> Any:
        """Values as scores."""
        return (values - self.low) / (self.high - self.low)


def parse_references(texts: str | Sequence[str]) -> dict[str, Reference]:
    """Parses `LOW,HIGH` and `ENVIRONMENT=LOW,HIGH`."""
    references = {}
    for text in [texts] if isinstance(texts, str) else texts:
        environment, _, numbers = text.rpartition("=")
        try:
            pair = [*map(float, numbers.split(","))]
        except ValueError:
            pair = []
        if not is_reference(pair):
            raise RlcliError(f"`--reference` cannot be {quote(text)}", HINT)
        references[environment] = Reference(*pair)
    return references


def note_unused(given: Mapping[str, Reference], members: Iterable[Member]) -> list[str]:
    """Notes on references of the user for environments that no run has."""
    known = {ALL, *(member.environment for member in members)}
    return [
        f"no run is of environment {quote(name)}, which has a `--reference`"
        for name in given
        if name not in known
    ]


def is_reference(value: Any) -> TypeGuard[list[float]]:
    """Whether a value is a list of two different numbers."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(each) in (int, float) and abs(each) <= _LARGEST for each in value)
        and value[0] != value[1]
    )


@cache
def shipped_references() -> Mapping[str, Mapping[str, Any]]:
    """`low`, `high`, their `source` and the `options` of each native environment."""
    return json.loads(Path(__file__).with_name("references.json").read_text("utf-8"))


def choose_references(
    members: Mapping[str, Iterable[Member]],
    given: Mapping[str, Reference],
    metric: str,
) -> tuple[dict[str, Reference], list[str]]:
    """The reference of the runs of each environment, and the environments without one.

    That of `given`, else of the study of all runs, else the one that ships, if the
    metric is the return and the runs have the options with which it was measured.
    Refuses one in which the value that becomes 1 is worse than that which becomes 0.
    """
    found, unknown = {}, []
    for environment, each in members.items():
        reference = _choose_reference([*each], environment, given, metric)
        if reference is None:
            unknown.append(environment)
            continue
        worse, better = reference
        best = choose_best(metric)
        if best and best(reference) != better:
            raise RlcliError(
                f"the reference {worse:g},{better:g} of {quote(environment)}: a score "
                f"of 1 is better than 0, but a `{metric}` of {better:g} is worse than "
                f"{worse:g}",
                f"write it the other way round: `{better:g},{worse:g}`",
            )
        found[environment] = reference
    return found, unknown


def _choose_reference(
    members: Sequence[Member],
    environment: str,
    given: Mapping[str, Reference],
    metric: str,
) -> Reference | None:
    if (own := given.get(environment, given.get(ALL))) is not None:
        return own
    studies = {member.cell[0] if member.cell else "" for member in members}
    found = {_of_study(study, environment) for study in studies}
    if len(found) == 1 and (own := found.pop()) is not None:
        return own
    shipped = shipped_references().get(environment)
    if shipped is None or metric not in DEFAULT_METRICS:
        return None
    same = all(_has_options(member, shipped["options"]) for member in members)
    return Reference(shipped["low"], shipped["high"]) if same else None


def _of_study(folder: str, environment: str) -> Reference | None:
    study = find_study(folder) if folder else None
    section = study.sections.get(REFERENCE) if study else None
    value = section.get(environment) if isinstance(section, Mapping) else None
    return Reference(*value) if is_reference(value) else None


def drop_other_options(section: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a section `environment` on which returns depend."""
    return {key: each for key, each in section.items() if key not in _NO_TASK}


def _has_options(member: Member, options: Mapping[str, Any]) -> bool:
    """Whether a run has the task with these options, and its rewards."""
    section = member.recipe.get("environment")
    section = section if isinstance(section, Mapping) else {}
    wrappers = json.dumps(section.get("wrappers") or [], default=str)
    own = drop_other_options(section)
    same = all(key in options and options[key] == own[key] for key in own)
    return same and "reward" not in wrappers
