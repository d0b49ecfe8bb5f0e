"""Claim test: the section `test` of a study: what is claimed, and with how many seeds.

The seeds of a cell come in blocks, each of them a run of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError, quote, suggest
from rlcli.recipe.annotations import quote_value
from rlcli.results.compare import RESULTS
from rlcli.results.comparison import Reference, choose_scales, parse_scales
from rlcli.results.curves import DEFAULT_METRICS
from rlcli.results.groups import ENVIRONMENT, label_cell
from rlcli.results.sequential_test import BITS, spend
from rlcli.runs.files import to_json
from rlcli.runs.study_record import Cell, Study

TEST = "test"  # the section of a study
SEED = "train.seed"  # which tells the blocks of a cell apart
RETURN = "return"
_MOST_LOOKS = 100


class ClaimTest(NamedTuple):
    """The section `test` of a study, and its blocks."""

    baseline: str  # the group of a cell, as `rlcli compare` calls it
    effect: float  # the smallest difference that matters; normalized as the results
    max_seeds: int  # of each cell
    seeds: int  # of a block
    seed: int = 0  # the first one
    metric: str = RETURN
    result: str = "last"  # of a seed, as in `rlcli.compare`
    alpha: float = 0.05
    std: float | None = None  # of the results of a cell over seeds, for the plan
    normalize: Sequence[str] = ()  # as in `rlcli.compare`
    allow_differences: bool = False

    @property
    def looks(self) -> range:
        """The numbers of seeds at which results are looked at."""
        return range(self.seeds, self.max_seeds + 1, self.seeds)


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 1e-200 < value < 1e200


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= 1_000


# What a user may write, and what is expected there.
RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "baseline": (_is_text, "the name of a cell, such as `ppo_cartpole`"),
    "effect": (_is_positive, "the smallest difference that matters, a number > 0"),
    "max_seeds": (_is_count, "the most seeds of a cell, 1 to 1,000"),
    "metric": (_is_text, "the name of a metric, such as `return`"),
    "result": (RESULTS.__contains__, "`last`, `best` or `auc`"),
    "alpha": (lambda x: _is_positive(x) and x < 1, "a number between 0 and 1"),
    "std": (_is_positive, "a standard deviation over seeds, a number > 0"),
    "normalize": (
        lambda x: isinstance(x, list) and all(map(_is_text, x)),
        "a list such as `[CartPole-v1=22,475]`",
    ),
    "allow_differences": (lambda x: isinstance(x, bool), "true or false"),
}
_EXAMPLE = "for example `{baseline: ppo_cartpole, effect: 20, max_seeds: 50}`"
_REQUIRED = ("baseline", "effect", "max_seeds")
_BLOCKS = {"seeds": _is_count, "seed": lambda x: type(x) is int and 0 <= x < 2**31}


def find_fault(fields: Any) -> tuple[str, str, str] | None:
    """The key, the message and the hint of an error in a section; None if it is right.

    The key is "" for an error of the whole section.
    """
    if not isinstance(fields, Mapping):
        return "", f"expected a test, got {quote_value(fields)}", _EXAMPLE
    for key, value in fields.items():
        if key not in RULES:
            message = f"a test has no key {quote(str(key))}"
            return str(key), message, suggest(str(key), RULES)
        is_right, expected = RULES[key]
        if not is_right(value) and not (value is None and key == "std"):
            return key, f"`{key}`: expected {expected}, got {quote_value(value)}", ""
    for key in _REQUIRED:
        if key not in fields:
            return "", f"a test needs `{key}`", f"`{key}` is {RULES[key][1]}"
    return None


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
                f"in {quote(missing)}"
            )
    scales = parse_scales(test.normalize)
    metric = DEFAULT_METRICS[0] if test.metric == RETURN else test.metric
    if len(environments) > 1:
        find_scales(environments, metric, scales)
    if not _has_blocks(test):
        raise RlcliError(
            f"`max_seeds`: {test.max_seeds} seeds are not 1 to {_MOST_LOOKS} blocks of "
            f"{test.seeds}",
            "`seeds` of the study is the size of a block",
        )
    if find_least(test, *count_groups(cells)) is None:
        raise RlcliError(
            f"{test.max_seeds} seeds cannot decide anything at the level "
            f"{test.alpha:g} for {len(groups) - 1} cells beside the baseline",
            "raise `max_seeds` or `alpha`",
        )


def _find_environments(cells: Sequence[Cell]) -> dict[str, set[str]]:
    """The environments of each group."""
    groups: dict[str, set[str]] = {}
    for cell in cells:
        groups.setdefault(name_group(cell), set()).add(cell.values.get(ENVIRONMENT, ""))
    return groups


def count_groups(cells: Sequence[Cell]) -> tuple[int, int]:
    """The numbers of groups beside the baseline, and of environments."""
    groups = _find_environments(cells)
    return len(groups) - 1, len(set().union(*groups.values()))


def _has_blocks(test: ClaimTest) -> bool:
    return not test.max_seeds % test.seeds and len(test.looks) <= _MOST_LOOKS


def find_scales(
    environments: Iterable[str], metric: str, scales: Mapping[str, Reference]
) -> dict[str, Reference]:
    """The returns that are normalized to 0 and 1, of each environment."""
    found = {}
    for environment, scale in choose_scales([*environments], metric, scales).items():
        if scale is None:
            raise RlcliError(
                "results of several environments are normalized, and "
                f"{quote(environment)} has no reference scores for `{metric}`",
                f"`normalize: [{environment}=MIN,MAX]` sets what becomes 0 and 1",
            )
        found[environment] = scale
    return found


def find_least(test: ClaimTest, variants: int, environments: int) -> int | None:
    """The smallest number of seeds that may decide a claim; None if none does."""
    for seeds in test.looks:
        share = spend(test.alpha / variants / 2, seeds / test.max_seeds)
        if share >= 2.0 ** -min(seeds * environments, BITS):
            return seeds
    return None


def name_group(cell: Cell) -> str:
    """The group of a cell, as `rlcli compare` calls it."""
    own = cell.recipe
    recipe = Path(own).stem if isinstance(own, str) else str(own["name"])
    return label_cell(recipe, cell.values)


def read_test(study: Study) -> ClaimTest | None:
    """The test of a study, whose record may come from elsewhere; None without one."""
    fields = study.sections.get(TEST)
    if fields is None:
        return None
    fields = dict(fields) if isinstance(fields, Mapping) else {}
    blocks = {key: fields.pop(key, None) for key in _BLOCKS}
    is_right = all(rule(blocks[key]) for key, rule in _BLOCKS.items())
    if is_right and not find_fault(fields):
        test = ClaimTest(**fields, **blocks)
        if _has_blocks(test):
            return test
    text = to_json(study.sections[TEST])[:100]
    raise RlcliError(f"`{study.folder}` has a damaged test: {text}")


def split_blocks(study: Study, test: ClaimTest) -> list[dict[str, list[Cell]]]:
    """The cells of each block that has begun, by group."""
    blocks: list[dict[str, list[Cell]]] = []
    for start in range(test.seed, test.seed + test.max_seeds, test.seeds):
        found: dict[str, list[Cell]] = {}
        for cell in study.cells:
            if cell.values.get(SEED) == str(start):
                found.setdefault(name_group(cell), []).append(cell)
        if test.baseline not in found:
            break
        blocks.append(found)
    return blocks
