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


@dataclass(frozen=True)
class SuiteFolder(OpenedFolder):
    """The folder of a sweep of bsuite, with the paths of its files."""

    def run(self, group: IdGroup) -> Path:
        """The run of ids with equal settings, such as `runs/catch-0-19`."""
        return self.find(RUNS, name_run(group))

    @property
    def exists(self) -> bool:
        """Whether it is the folder of a sweep."""
        return BSUITE in self.read_study().sections

    def read_info(self) -> dict[str, Any]:
        """What the sweep was started with; refuses damaged files, and links."""
        self.refuse_links(RUNS, RESULTS)
        info = self.read_section(BSUITE, _FIELDS)
        try:
            select_ids(info["chosen"])
        except RlcliError as error:
            message = f"`{self.record}` is damaged: {error.message}"
            raise RlcliError(message, REMEDY) from error
        return info

    def write_info(
        self, info: Mapping[str, Any], cells: Sequence[Cell], **sections: Any
    ) -> None:
        """Records the cells, how the sweep was started, and the run of each id."""
        section = {**info, "ids": place_ids(info)}
        sections[BSUITE] = section
        record_study(self.folder, cells, sign=self.trust or None, **sections)


def name_run(group: IdGroup) -> str:
    """The name of the run of a group of ids."""
    ends = dict.fromkeys((group.indices[0], group.indices[-1]))  # one if they are equal
    return "-".join([group.experiment, *map(str, ends)])


def list_groups(info: Mapping[str, Any]) -> list[IdGroup]:
    """The ids of a sweep, grouped by the run that they share."""
    return group_ids(select_ids(info["chosen"]))


def place_ids(info: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """The name of the run of each id, and its seed there."""
    return {
        f"{group.experiment}/{index}": (name_run(group), info["seed"] + group.seed + i)
        for group in list_groups(info)
        for i, index in enumerate(group.indices)
    }


_FIELDS: Mapping[str, predicates.Predicate] = {
    "recipe": predicates.is_word,
    "set": predicates.list_of(predicates.is_word),
    "seed": lambda value: predicates.is_int(value) and 0 <= value < 2**31,
    "mnist": predicates.or_none(predicates.is_word),
    "smoke": predicates.is_flag,
    "chosen": predicates.list_of(predicates.is_word),
    "notes": predicates.list_of(predicates.is_word),
}
