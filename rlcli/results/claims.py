"""Claims: whether cells of a study are better than a baseline, by the study's `test`.

Each seed of a cell is a pair with the same seed of the baseline, and `sequential_test`
decides from their differences. α is divided by the number of cells beside the baseline
(Bonferroni), so with a probability of 1 − α all claims of a study are true, and all
intervals right. Results of several environments are normalized, and each environment
is a stratum.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.errors import RlcliError, quote
from rlcli.registry.paths import resolves
from rlcli.results.claim_test import (
    RETURN,
    ClaimTest,
    find_least,
    find_references,
    read_test,
    split_blocks,
)
from rlcli.results.comparison import ComparisonSettings, collect_members, read_samples
from rlcli.results.groups import CELL, find_members
from rlcli.results.references import parse_references
from rlcli.results.sequential_test import (
    BETTER,
    SAME,
    UNDECIDED,
    WORSE,
    Decision,
    decide,
    estimate_power,
)
from rlcli.runs.formatting import format_number
from rlcli.runs.metric_labels import choose_best
from rlcli.runs.records import COMPLETE, UNFINISHED
from rlcli.runs.result import Result, Table
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import Cell, Study, find_study

Results = Mapping[str, Mapping[int, float]]  # of a group: environment -> seed -> result


@resolves("study")
def claim(study: str | Path, *, plan: bool = False) -> Result:
    """What the `test` of a study has shown so far: a verdict for each cell.

    A verdict is `better`, `worse`, `no difference` (none larger than `effect`), or
    `undecided`, with a sentence, the mean difference and its interval, and the number
    of seeds. Blocks that have not finished do not count yet.

    Args:
        study: the folder of a study.
        plan: also the power of all seeds, by the measured standard deviation.
    """
    found = find_study(study)
    claims = None if found is None else read_claims(found, plan=plan)
    if claims is None:
        raise RlcliError(
            f"{quote(study)} is not the folder of a study with a `test`",
            "begin one with `rlcli study FILE`, whose file has a section `test`",
        )
    return Result(claims, _tables)


def read_claims(study: Study, *, plan: bool = False) -> dict[str, Any] | None:
    """What `rlcli.claim` returns; None if the study has no test."""
    test = read_test(study)
    if test is None:
        return None
    blocks = split_blocks(study, test)
    if not blocks:
        raise RlcliError(
            f"the test in `{study.folder}` is damaged: it has no cell "
            f"{quote(test.baseline)}",
            "restore `study.json`",
        )
    groups = [*blocks[0]]
    variants = [group for group in groups if group != test.baseline]
    finished = {group: _count_finished(blocks, group) for group in groups}
    read = {
        cell.folder: group
        for number, block in enumerate(blocks)
        for group, cells in block.items()
        if number < finished[group]
        for cell in cells
    }
    is_smoke = any(cell.is_smoke for cell in study.cells)  # results mean nothing
    notes = [
        note
        for group, number in finished.items()
        for note in _note_missing(blocks, group, number)
    ]
    metric, sign, results = "", 1.0, {}
    if read:
        metric, sign, results = _read_results(test, read, notes)
    claims = []
    for variant in variants:
        blocks_done = min(finished[variant], finished[test.baseline])
        pairs = _pair(test, results, variant, blocks_done, notes)
        found = _decide(test, pairs, len(variants), sign)
        is_normalized = pairs.shape[1] > 1 or bool(test.reference)
        noun = _name_result(test, is_normalized=is_normalized)
        row: dict[str, Any] = {
            "cell": variant,
            "baseline": test.baseline,
            "verdict": found.verdict,
            "sentence": _write_sentence(test, variant, noun, found),
            "seeds": found.pairs,
            "difference": _finite(found.mean),
            "low": _finite(found.low),
            "high": _finite(found.high),
            # Whether further seeds could decide it.
            "is_open": not is_smoke
            and found.verdict == UNDECIDED
            and found.pairs == blocks_done * test.seeds < test.max_seeds,
        }
        if plan and len(pairs) > 1:
            std = float(pairs.mean(axis=1).std(ddof=1))
            row["plan"] = plan_test(test, len(variants), pairs.shape[1], std)
        claims.append(row)
    return {
        "study": str(study.folder),
        "test": test._asdict(),
        "metric": metric or None,
        "claims": claims,
        "notes": [*dict.fromkeys(notes)],
    }


def describe_claims(study: Study) -> list[str]:
    """What the `test` of a study has shown so far, in sentences; [] without one."""
    try:
        found = read_claims(study)
    except RlcliError as error:  # such as results that cannot be compared
        return [f"no claim yet: {error.message}"]
    if found is None:
        return []
    notes = [f"note: {note}" for note in found["notes"]]
    return [*(each["sentence"] for each in found["claims"]), *notes]


def _count_finished(blocks: Sequence[Mapping[str, Sequence[Cell]]], group: str) -> int:
    """The number of blocks before the first that a group has not finished."""
    for count, block in enumerate(blocks):
        cells = block.get(group, ())
        if not cells or not all(map(is_finished, cells)):
            return count
    return len(blocks)


def _note_missing(
    blocks: Sequence[Mapping[str, Sequence[Cell]]], group: str, finished: int
) -> Iterator[str]:
    """What a group lacks, so that its seeds after so many blocks do not count.

    Nothing while a block is trained: a cell has failed, or later blocks were begun
    without it.
    """
    for cell in blocks[finished].get(group, ()) if finished < len(blocks) else ():
        status = Run(cell.folder).read_info().get("status", "missing")
        is_behind = finished < len(blocks) - 1 and status not in UNFINISHED
        if status == "failed" or is_behind:
            yield (
                f"`{cell.label}` is {status}, so no later seeds of `{group}` count: "
                "`rlcli resume` trains it again"
            )


def is_finished(cell: Cell) -> bool:
    """Whether the run of a cell has its result."""
    return Run(cell.folder).read_info().get("status") in COMPLETE


def _read_results(
    test: ClaimTest, groups: Mapping[Path, str], notes: list[str]
) -> tuple[str, float, Mapping[str, Results]]:
    """The metric, and the results of each group, normalized where they have to be.

    Also a sign: −1 where less is better. `groups` are those of the folders of runs.
    """
    given = parse_references(test.reference)
    metric = None if test.metric == RETURN else test.metric
    settings = ComparisonSettings(
        test.result, metric, None, CELL, given, test.allow_differences
    )
    members = find_members([*groups], notes)
    metric, samples = read_samples(members, settings, notes)
    used = {}
    if len(samples) > 1 or given:
        used = find_references(collect_members(samples), metric, given)
    results: dict[str, dict[str, dict[int, float]]] = {}
    for environment, each in samples.items():
        for sample in each:
            values = sample.results
            if used:
                values = used[environment].normalize(values)
            seeds = (seed.seed for seed in sample.by_steps)
            own = dict(zip(seeds, values.tolist(), strict=True))
            group = groups[sample.group.members[0].folder]
            results.setdefault(group, {})[environment] = own
    sign = -1.0 if choose_best(metric) is min and not used else 1.0
    return metric, sign, results


def _pair(
    test: ClaimTest,
    results: Mapping[str, Results],
    variant: str,
    blocks: int,
    notes: list[str],
) -> np.ndarray:
    """The differences to the baseline `[pairs, environments]`, of complete blocks."""
    first, second = (results.get(group, {}) for group in (variant, test.baseline))
    if not first or not second:
        notes += [
            f"`{group}` has no results"
            for group, own in ((variant, first), (test.baseline, second))
            if blocks and not own
        ]
        return np.zeros((0, 1))
    rows: list[list[float]] = []
    for seed in range(test.seed, test.seed + blocks * test.seeds):
        missing = [
            f"seed {seed} of `{group}` in {environment} has no result: neither this "
            "block of seeds nor later ones count"
            for environment in {**first, **second}
            for group, own in ((variant, first), (test.baseline, second))
            if seed not in own.get(environment, {})
        ]
        if missing:
            notes += missing
            break
        row = [first[name][seed] - second[name][seed] for name in first]
        if not all(map(math.isfinite, row)):
            notes.append(f"the results of seed {seed} are too large to compare")
            break
        rows.append(row)
    complete = len(rows) // test.seeds * test.seeds
    return np.array(rows[:complete]).reshape(complete, len(first))


def _decide(test: ClaimTest, pairs: np.ndarray, variants: int, sign: float) -> Decision:
    """Decides from the differences of pairs; `sign` is −1 where less is better."""
    if not len(pairs):
        return Decision(UNDECIDED, 0, math.nan, -math.inf, math.inf)
    looks, alpha = test.looks[: len(pairs) // test.seeds], test.alpha / variants
    found = decide(sign * pairs, looks, test.max_seeds, test.effect, alpha)
    low, high = sorted((sign * found.low, sign * found.high))
    return found._replace(mean=sign * found.mean, low=low, high=high)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _name_result(test: ClaimTest, *, is_normalized: bool) -> str:
    words = ["normalized"] * is_normalized
    words += {"best": ["best"], "auc": ["average"], "last": []}[test.result]
    return " ".join([*words, RETURN if test.metric == RETURN else f"`{test.metric}`"])


def _write_sentence(test: ClaimTest, variant: str, noun: str, found: Decision) -> str:
    cells = f"`{variant}`", f"`{test.baseline}`"
    words = {
        BETTER: "{} is better than {}",
        WORSE: "{} is worse than {}",
        SAME: f"{{}} and {{}} differ by no more than {format_number(test.effect)}",
        UNDECIDED: "it is undecided whether {} is better than {}",
    }[found.verdict].format(*cells)
    if not found.pairs:
        return f"{words}: no block of seeds has finished"
    sizes = [
        0.0 if abs(each) < 1e-6 * test.effect else each
        for each in (found.mean, found.low, found.high)
    ]
    mean, low, high = map(format_number, sizes)
    level = f"{100 * (1 - test.alpha):g} %"
    ends = f"{level} interval {low} to {high}"
    if math.isinf(found.low) or math.isinf(found.high):
        ends = f"too few seeds for a {level} interval"
    return (
        f"{words}: the mean difference in {noun} is {mean} ({ends}), after "
        f"{found.pairs} of at most {test.max_seeds} seeds"
    )


def plan_test(
    test: ClaimTest, variants: int, environments: int, std: float | None = None
) -> dict[str, Any]:
    """How many seeds a claim needs, and the power of all of them.

    `std`: the standard deviation of the difference of a pair, its mean over
    environments; by default that of two independent seeds with the `std` of the test.
    """
    if std is None and test.std is not None:
        std = test.std * math.sqrt(2 / environments)
    finds = excludes = None
    if std is not None:
        alpha = test.alpha / variants
        finds, excludes = estimate_power(test.effect, std, test.looks, alpha)
    return {
        "min_seeds": find_least(test, variants, environments),
        "max_seeds": test.max_seeds,
        "effect": test.effect,
        "std": std,
        "finds": finds,
        "excludes": excludes,
    }


def describe_plan(plan: Mapping[str, Any]) -> str:
    """A plan as a sentence."""
    text = (
        f"a claim takes {plan['min_seeds']} to {plan['max_seeds']} seeds of each cell"
    )
    if plan["finds"] is None:
        return f"{text}; `test: {{std: …}}` tells the power"
    effect, std = format_number(plan["effect"]), format_number(plan["std"])
    return (
        f"{text}; if differences between seeds have a standard deviation of {std}, a "
        f"mean difference of {effect} is found with a probability of "
        f"{plan['finds']:.0%}, and without a difference it is excluded with "
        f"{plan['excludes']:.0%}"
    )


def _tables(data: Mapping[str, Any]) -> Iterator[Table]:
    """The claims in a notebook."""
    yield Table("", ["claim"], [[each["sentence"]] for each in data["claims"]])
