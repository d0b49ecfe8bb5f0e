"""Claim test: the section `test` of a study: what is claimed, and with how many seeds.

The seeds of a cell come in blocks, each of them a run of its own.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from annotated_types import Ge, Gt, Le, Lt

from rlcli.errors import RlcliError, quote, suggest
from rlcli.recipe.annotations import quote_value
from rlcli.recipe.documents import Place
from rlcli.recipe.grammar import FailFunction, Reader
from rlcli.results.curves import DEFAULT_METRICS
from rlcli.results.groups import ENVIRONMENT, Member, find_cell_key, label_cells
from rlcli.results.references import Reference, choose_references, parse_references
from rlcli.results.sequential_test import BITS, spend
from rlcli.runs.formatting import format_number_of
from rlcli.runs.study_record import Cell, Study

TEST = "test"  # the section of a study
SEED = "train.seed"  # which tells the blocks of a cell apart
RETURN = "return"
_MOST_LOOKS = 100
_EXAMPLE = "for example `{baseline: ppo_cartpole, effect: 20, max_seeds: 50}`"
_LARGEST_SEED = 2**31 - 1  # of a recipe
Positive = Annotated[float, Gt(0), "structural"]
Count = Annotated[int, Ge(1), Le(1_000)]


class ClaimTest(NamedTuple):
    """The section `test` of a study, and its blocks."""

    baseline: str  # the group of a cell, as `rlcli compare` calls it
    effect: Positive  # the smallest difference that matters, in units of the results
    max_seeds: Count  # of each cell
    seeds: Count  # of a block
    seed: Annotated[int, Ge(0)] = 0  # the first one
    metric: str = RETURN
    result: Literal["last", "best", "auc"] = "last"  # of a seed, as in `rlcli.compare`
    alpha: Annotated[float, Gt(0), Lt(1), "structural"] = 0.05
    std: Positive | None = None  # of the results of a cell over seeds, for the plan
    reference: list[str] = []  # noqa: RUF012 - as in `rlcli.compare`; never changed
    allow_differences: bool = False

    @property
    def looks(self) -> range:
        """The numbers of seeds at which results are looked at."""
        return range(self.seeds, self.max_seeds + 1, self.seeds)


def convert_test(fields: Any, fail: FailFunction, **blocks: Any) -> ClaimTest:
    """The test of a section; `fail` gets the place of what is wrong.

    `blocks`: `seeds` and `seed`, if the section has not them.
    """
    if not isinstance(fields, Mapping):
        fail((TEST,), f"expected a test, got {quote_value(fields)}", _EXAMPLE)
    known = {**inspect.signature(ClaimTest).parameters}
    for key in blocks:
        del known[key]
    options = Reader("the test", (TEST,), fail).options(known, fields)
    return ClaimTest(**options, **blocks)


def check_test(test: ClaimTest, cells: Sequence[Cell]) -> None:
    """Refuses a test that could not decide anything about the cells of a block."""
    groups = _find_environments(cells)
    if test.baseline not in groups:
        message = f"the study has no cell {quote(test.baseline)} as a baseline"
        raise RlcliError(message, suggest(test.baseline, groups))
    if len(groups) < 2:
        raise RlcliError(
            f"a test needs cells to compare, and the study has only `{test.baseline}`",
            "add a recipe, or values with `vary`",
        )
    environments = set().union(*groups.values())
    for group, found in groups.items():
        for missing in sorted(environments - found):
            raise RlcliError(
                f"a test needs each cell in each environment, and `{group}` has none "
                f"in {quote(missing)}",
                "leave out the cell or the environment",
            )
    references = parse_references(test.reference)
    metric = DEFAULT_METRICS[0] if test.metric == RETURN else test.metric
    if len(environments) > 1:
        find_references(dict.fromkeys(environments, ()), metric, references)
    if not _has_blocks(test):
        raise RlcliError(
            f"`max_seeds`: {test.max_seeds} seeds are not 1 to {_MOST_LOOKS} blocks of "
            f"{test.seeds}",
            "`seeds` of the study is the size of a block",
        )
    if test.seed + test.max_seeds - 1 > _LARGEST_SEED:
        raise RlcliError(
            f"{test.max_seeds} seeds from {test.seed} are larger than {_LARGEST_SEED}",
            "begin with a smaller `--seed`",
        )
    if find_least(test, *count_groups(cells)) is None:
        raise RlcliError(
            f"{test.max_seeds} seeds cannot decide anything at the level "
            f"{test.alpha:g} for {format_number_of(len(groups) - 1, 'cell')} beside "
            "the baseline",
            "raise `max_seeds` or `alpha`",
        )


def _find_environments(cells: Sequence[Cell]) -> dict[str, set[str]]:
    """The environments of each group."""
    groups: dict[str, set[str]] = {}
    for cell, group in zip(cells, name_groups(cells), strict=True):
        groups.setdefault(group, set()).add(cell.values.get(ENVIRONMENT, ""))
    return groups


def count_groups(cells: Sequence[Cell]) -> tuple[int, int]:
    """The numbers of groups beside the baseline, and of environments."""
    groups = _find_environments(cells)
    return len(groups) - 1, len(set().union(*groups.values()))


def _has_blocks(test: ClaimTest) -> bool:
    return not test.max_seeds % test.seeds and len(test.looks) <= _MOST_LOOKS


def find_references(
    environments: Mapping[str, Iterable[Member]],
    metric: str,
    given: Mapping[str, Reference],
) -> dict[str, Reference]:
    """The returns that are normalized to 0 and 1, of the runs of each environment."""
    found, unknown = choose_references(environments, given, metric)
    for environment in unknown:
        raise RlcliError(
            "results of several environments are normalized, and "
            f"{quote(environment)} has no reference scores for `{metric}`",
            f"`reference: {{{environment}: [LOW, HIGH]}}` of the study sets what "
            "becomes 0 and 1",
        )
    return found


def find_least(test: ClaimTest, variants: int, environments: int) -> int | None:
    """The smallest number of seeds that may decide a claim; None if none does."""
    for seeds in test.looks:
        share = spend(test.alpha / variants / 2, seeds / test.max_seeds)
        if share >= 2.0 ** -min(seeds * environments, BITS):
            return seeds
    return None


def name_groups(cells: Sequence[Cell]) -> list[str]:
    """The group of each cell of a study, as `rlcli compare` calls it."""
    recipes = (cell.recipe for cell in cells)
    names = (Path(r).stem if isinstance(r, str) else str(r["name"]) for r in recipes)
    keys = [*map(find_cell_key, names, (cell.values for cell in cells))]
    known = [*dict.fromkeys(keys)]
    labels = dict(zip(known, label_cells(known), strict=True))
    return [labels[key] for key in keys]


def read_test(study: Study) -> ClaimTest | None:
    """The test of a study, whose record may come from elsewhere; None without one."""
    fields = study.sections.get(TEST)
    if fields is None:
        return None

    def fail(place: Place, message: str, hint: str) -> NoReturn:
        del place
        raise RlcliError(f"the test in `{study.folder}` is damaged: {message}", hint)

    test = convert_test(fields, fail)
    if not _has_blocks(test):
        fail((), "`max_seeds` is no multiple of `seeds`", "restore `study.json`")
    return test


def split_blocks(study: Study, test: ClaimTest) -> list[dict[str, list[Cell]]]:
    """The cells of each block that has begun, by group."""
    blocks: list[dict[str, list[Cell]]] = []
    groups = name_groups(study.cells)
    for start in range(test.seed, test.seed + test.max_seeds, test.seeds):
        found: dict[str, list[Cell]] = {}
        for cell, group in zip(study.cells, groups, strict=True):
            if cell.values.get(SEED) == str(start):
                found.setdefault(group, []).append(cell)
        if test.baseline not in found:
            break
        blocks.append(found)
    return blocks
