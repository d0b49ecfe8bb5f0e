"""Layout: the files of a sweep of bsuite, and what it was started with.

runs/bsuite/<recipe>/<time>/
  study.json      how it was started, the run and seed of each id, and the cells
  runs/           the runs; ids with equal settings are the seeds of one
  results/        a CSV file for each id, in bsuite's format
  scores.json, scores.md, radar.png
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.runs import predicates
from rlcli.runs.files import REMEDY
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.runs.study_record import BSUITE, Cell, record_study
from rlcli.studies.bsuite.experiments import IdGroup, group_ids, select_ids

RUNS, RESULTS = "runs", "results"


@dataclass(frozen=True, kw_only=True)
class Suite(OpenedFolder):
    """A sweep of bsuite that exists, or is planned, with the paths of its files."""

    info: Mapping[str, Any]  # what it was started with

    @property
    def groups(self) -> list[IdGroup]:
        """Its ids, grouped by the run that they share."""
        return group_ids(select_ids(self.info["chosen"]))

    def run(self, group: IdGroup) -> Path:
        """The run of ids with equal settings, such as `runs/catch-0-19`."""
        ends = dict.fromkeys((group.indices[0], group.indices[-1]))  # one if equal
        return self.find(RUNS, "-".join([group.experiment, *map(str, ends)]))

    def place_ids(self) -> dict[str, tuple[str, int]]:
        """The name of the run of each id, and its seed there."""
        first = self.info["seed"]
        return {
            f"{group.experiment}/{index}": (self.run(group).name, first + seed)
            for group in self.groups
            for seed, index in enumerate(group.indices, group.seed)
        }

    def write(self, cells: Sequence[Cell], **sections: Any) -> None:
        """Records the cells, how the sweep was started, and the run of each id."""
        sections[BSUITE] = {**self.info, "ids": self.place_ids()}
        record_study(self.folder, cells, sign=self.trust or None, **sections)


def find_suite(folder: Path, trust: bool | None = None) -> Suite | None:
    """The sweep in a folder, if there is one; refuses damaged files, and links."""
    opened = OpenedFolder(folder, trust)
    if BSUITE not in opened.read_study().sections:
        return None
    opened.refuse_links(RUNS, RESULTS)
    info = opened.read_section(BSUITE, _FIELDS)
    try:
        select_ids(info["chosen"])
    except RlcliError as error:
        message = f"`{opened.record}` is damaged: {error.message}"
        raise RlcliError(message, REMEDY) from error
    return Suite(folder, trust, info=info)


_FIELDS: Mapping[str, predicates.Predicate] = {
    "recipe": predicates.is_word,
    "set": predicates.list_of(predicates.is_word),
    "seed": lambda value: predicates.is_int(value) and 0 <= value < 2**31,
    "mnist": predicates.or_none(predicates.is_word),
    "smoke": predicates.is_flag,
    "chosen": predicates.list_of(predicates.is_word),
    "notes": predicates.list_of(predicates.is_word),
}
