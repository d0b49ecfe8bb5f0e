"""Error rates of `rlcli claim`, and of what is usual, on the same trained seeds.

    python -m benchmarks.claims [STUDIES]

Trains very many seeds of two cheap tasks, and makes studies of them: A/A studies, whose
two cells are seeds of one recipe, and A/B studies, whose cells differ in the learning
rate. No seed is in two A/A or two A/B studies, so studies are independent. A cell has
at most 50 seeds, in blocks of 5, and `effect` is the true difference of A and B: that
of the means of all seeds. The last lines are of drawn numbers: equal means of different
shapes.
`build/claims` has the runs, which are not trained again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

import rlcli
from rlcli.results.sequential_test import (
    BETTER,
    SAME,
    UNDECIDED,
    WORSE,
    decide,
    estimate_power,
)
from rlcli.runs.run_folder import is_run
from rlcli.runs.statistics import bootstrap_ci95, wilson_interval

STUDIES, SEEDS, BLOCK, ALPHA = 1_000, 50, 5, 0.05
LOOKS = range(BLOCK, SEEDS + 1, BLOCK)
USUAL = 5  # seeds of a cell in many papers
PART = 10_000  # seeds of a run
FOLDER = Path("build/claims")
HEADER = """\
| procedure | A/A: false claims | 95 % interval | A/B: found | wrong sign | seeds |
|---|---|---|---|---|---|"""


class Task(NamedTuple):
    """A recipe, the learning rates of A and B, and settings that make it short."""

    title: str
    recipe: str
    rates: tuple[float, float]
    steps: int
    settings: tuple[str, ...]


TASKS = (
    Task(
        "Q-learning on FrozenLake without slipping: a return of 0 or 1",
        "qlearning_frozenlake",
        (0.02, 0.045),
        1_500,
        ("train.evaluate.episodes=1",),
    ),
    Task(
        "REINFORCE on CartPole: skewed returns between 9 and 500",
        "reinforce_cartpole",
        (0.02, 0.005),
        8_192,
        ("train.unroll=64", "network.layers=[16]", "train.evaluate.episodes=10"),
    ),
)
# The verdict and the seeds of a cell, from results of a variant and of a baseline.
Procedure = Callable[[np.ndarray, np.ndarray], tuple[str, int]]


def train(task: Task, rate: float, seeds: int) -> np.ndarray:
    """The last evaluation of each seed of a recipe."""
    every = f"train.log.every={task.steps}", f"train.evaluate.every={task.steps}"
    results: list[float] = []
    for first in range(0, seeds, PART):
        place = FOLDER / f"{task.recipe}-{rate:g}-{first}-{min(PART, seeds)}"
        if not is_run(place):
            rlcli.train(
                task.recipe,
                set=[
                    *(*task.settings, *every, f"train.steps={task.steps}"),
                    f"optimizer.learning_rate={rate:g}",
                    f"train.checkpoint.every={100 * task.steps}",
                ],
                seed=first,
                seeds=min(PART, seeds),
                run=place,
                quiet=True,
            )
        values = np.asarray(rlcli.metrics(place)["evaluation.mean"], float)
        results += values[np.isfinite(values)].tolist()
    return np.array(results[:seeds])


def claim(effect: float) -> Procedure:
    """What a study with a `test` does."""

    def run(first: np.ndarray, second: np.ndarray) -> tuple[str, int]:
        pairs = (first - second)[:, None]
        found = decide(pairs, LOOKS, SEEDS, effect, ALPHA)
        return found.verdict, found.pairs

    return run


def _compare(first: np.ndarray, second: np.ndarray, is_found: bool) -> tuple[str, int]:
    if not is_found:
        return UNDECIDED, len(first)
    return (BETTER if first.mean() > second.mean() else WORSE), len(first)


def separate_bars(half: Callable[[np.ndarray], float]) -> Procedure:
    """Claims a difference if bars around two means of 5 seeds do not overlap."""

    def run(first: np.ndarray, second: np.ndarray) -> tuple[str, int]:
        one, other = first[:USUAL], second[:USUAL]
        gap = abs(one.mean() - other.mean())
        return _compare(one, other, bool(gap > half(one) + half(other)))

    return run


def separate_intervals(first: np.ndarray, second: np.ndarray) -> tuple[str, int]:
    """Claims a difference if 95 % bootstrap intervals of 5 seeds do not overlap."""
    one, other = first[:USUAL], second[:USUAL]
    (low, high), (low_2, high_2) = (
        bootstrap_ci95(each, "mean") for each in (one, other)
    )
    return _compare(one, other, low > high_2 or low_2 > high)


def _is_significant(first: np.ndarray, second: np.ndarray) -> bool:
    if np.ptp(first) == np.ptp(second) == 0:  # Welch's test has no answer
        return bool(first[0] != second[0])
    one, other = ((x.mean(), x.std(ddof=1), len(x)) for x in (first, second))
    _, p = stats.ttest_ind_from_stats(*one, *other, equal_var=False)
    return bool(p < ALPHA)


def test_once(seeds: int) -> Procedure:
    """Welch's t-test at 5 %, with a number of seeds that was fixed before."""

    def run(first: np.ndarray, second: np.ndarray) -> tuple[str, int]:
        one, other = first[:seeds], second[:seeds]
        return _compare(one, other, _is_significant(one, other))

    return run


def peek(first: np.ndarray, second: np.ndarray) -> tuple[str, int]:
    """Welch's t-test at 5 % after each seed from the third on, until one is found."""
    for seeds in range(3, SEEDS + 1):
        if _is_significant(first[:seeds], second[:seeds]):
            return _compare(first[:seeds], second[:seeds], True)
    return UNDECIDED, SEEDS


def procedures(effect: float) -> dict[str, Procedure]:
    """All procedures by their names."""
    error = separate_bars(lambda x: float(x.std(ddof=1)) / len(x) ** 0.5)
    return {
        f"`rlcli claim`, looks after {BLOCK}, {2 * BLOCK}, … {SEEDS} seeds": claim(
            effect
        ),
        "t-test, 50 seeds, one look": test_once(SEEDS),
        "t-test, 5 seeds, one look": test_once(USUAL),
        "5 seeds, ± standard error does not overlap": error,
        "5 seeds, ± standard deviation does not overlap": separate_bars(
            lambda x: float(x.std(ddof=1))
        ),
        "5 seeds, 95 % bootstrap intervals do not overlap": separate_intervals,
        "t-test after each seed from 3 to 50, until it finds something": peek,
    }


def split(first: np.ndarray, second: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The results of both cells of each study."""
    shape = (-1, SEEDS)
    return zip(first.reshape(shape), second.reshape(shape), strict=True)


def count(
    procedure: Procedure, first: np.ndarray, second: np.ndarray
) -> tuple[list[str], float]:
    """The verdict of each study, and the mean number of seeds."""
    verdicts, seeds = zip(
        *(procedure(*each) for each in split(first, second)), strict=True
    )
    return [*verdicts], float(np.mean(seeds))


def measure(
    equal: Sequence[np.ndarray], different: Sequence[np.ndarray], effect: float
) -> None:
    """Prints the rates of each procedure; B is better or worse than A by `effect`."""
    sign = np.sign(different[0].mean() - different[1].mean())
    right, wrong = (BETTER, WORSE) if sign > 0 else (WORSE, BETTER)
    excluded: list[str] = []  # of the first procedure, which is that of rlcli
    print(HEADER, flush=True)
    for name, procedure in procedures(effect).items():
        same, seeds_same = count(procedure, *equal)
        other, seeds_other = count(procedure, *different)
        false = sum(each in (BETTER, WORSE) for each in same) / len(same)
        low, high = wilson_interval(false, len(same))
        cells = [
            name,
            f"{false:.1%}",
            f"{low:.1%} … {high:.1%}",
            f"{other.count(right) / len(other):.1%}",
            f"{other.count(wrong) / len(other):.1%}",
            f"{seeds_same:.1f}, {seeds_other:.1f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
        excluded += [f"{each.count(SAME) / len(each):.1%}" for each in (same, other)]
    print(
        f"\n`rlcli claim`: no difference larger than {effect:.3g} in {excluded[0]} of "
        f"A/A and {excluded[1]} of A/B studies"
    )


def main(studies: int = STUDIES) -> None:
    """Trains the seeds, and prints a table for each task, and one of drawn numbers."""
    half = studies * SEEDS
    for task in TASKS:
        baseline = train(task, task.rates[0], 2 * half)
        variant = train(task, task.rates[1], half)
        effect = abs(variant.mean() - baseline.mean())
        spreads = [np.hypot(each.std(), baseline.std()) for each in (variant, baseline)]
        (finds, _), (_, excludes) = (
            estimate_power(effect, float(std), LOOKS, ALPHA) for std in spreads
        )
        rates = " and ".join(f"{rate:g}" for rate in task.rates)
        print(
            f"\n{task.title}; learning rates {rates}\n{studies:,} A/A and {studies:,} "
            f"A/B studies; means {baseline.mean():.3f} and {variant.mean():.3f}, "
            f"standard deviations {baseline.std():.3f} and {variant.std():.3f}\n"
            f"planned: found in {finds:.1%}, excluded in {excludes:.1%} without one\n"
        )
        measure((baseline[:half], baseline[half:]), (variant, baseline[half:]), effect)
    random = np.random.default_rng(0)
    print("\nDrawn: A is normal (450, 20); B is 500, and in one case of ten 0\n")
    first = random.normal(450, 20, half)
    second = np.where(random.random(half) < 0.1, 0.0, 500.0)
    for name, procedure in procedures(50.0).items():
        verdicts, seeds = count(procedure, second, first)
        false = [verdicts.count(each) / studies for each in (BETTER, WORSE)]
        print(f"{name}: better {false[0]:.1%}, worse {false[1]:.1%}; {seeds:.1f} seeds")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
