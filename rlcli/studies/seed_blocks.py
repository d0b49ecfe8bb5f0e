"""Seed blocks: the cells of a study with a `test`, one block of seeds after the other.

The cells of a block have the same seeds, and are below a folder that is named after the
first one. Which cells the next block has is decided by the results in the folder, once
each cell has a result or has failed, so a study that was killed goes on as if it had
not been.
"""

from collections.abc import Container, Sequence
from pathlib import Path

from rlcli.errors import RlcliError
from rlcli.results.claim_test import TEST, read_test, split_blocks
from rlcli.results.claims import is_finished, read_claims
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.runs.study_record import Cell, record_study
from rlcli.studies.study_grid import begin_block
from rlcli.studies.study_loop import CellEnd, CellSource

# Options that change results, so that blocks would differ in them.
_FIXED = ("train.steps", "train.stop", "train.evaluate")


def block_source(folder: Path) -> CellSource:
    """Adds the blocks of a study's test, each when all cells before it have ended."""
    asked: set[int] = set()

    def choose(ended: Sequence[CellEnd]) -> list[Cell]:
        if len(ended) in asked:  # nothing has ended since: `add_block` reads results
            return []
        asked.add(len(ended))
        return add_block(folder, {e.cell.label for e in ended if not e.is_stopped})

    return CellSource(choose)


def add_block(folder: Path, ended: Container[str] = ()) -> list[Cell]:
    """Adds the next block of a study's test to its record, and returns its cells.

    It has the baseline and the cells that are still undecided. A cell that has failed
    holds back its own seeds only: it catches up when it is trained again. `ended` are
    the labels of cells that have ended, also of those that have failed; others have
    ended if they are finished. [] without a test, and if a cell has not ended, all is
    decided, or all seeds are spent.
    """
    study = OpenedFolder(folder).read_study()
    if (test := read_test(study)) is None:
        return []
    if not all(cell.label in ended or is_finished(cell) for cell in study.cells):
        return []
    claims = read_claims(study)
    assert claims is not None
    groups = split_blocks(study, test)[0].items()
    known = {cell.label for cell in study.cells}
    next_seeds = {
        each["cell"]: each["seeds"] for each in claims["claims"] if each["is_open"]
    }
    added = [
        begin_block(cell, cell.label.partition("/")[2], test.seed + seeds)
        for seeds in sorted({*next_seeds.values()})
        for group, cells in groups
        if group == test.baseline or next_seeds.get(group) == seeds
        for cell in cells
    ]
    added = [cell for cell in added if cell.label not in known]
    if added:
        record_study(folder, added)
    return added


def refuse_changes(folder: Path, sets: Sequence[str]) -> None:
    """Refuses settings that would change the results of a test that has begun."""
    has_test = TEST in OpenedFolder(folder).read_study().sections
    for text in sets if has_test else ():
        key = text.partition("=")[0].strip()
        if any(
            f"{key}.".startswith(f"{each}.") or each.startswith(f"{key}.")
            for each in _FIXED
        ):
            raise RlcliError(
                f"`{key}` cannot change in a study with a `test`: its blocks of seeds "
                "would differ",
                "begin another study",
            )
