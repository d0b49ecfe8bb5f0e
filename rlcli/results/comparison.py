"""Comparison: results of seeds, and their statistics by environment and group."""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlcli.results import aggregates, protocol
from rlcli.results.aggregates import Estimate, Scores
from rlcli.results.curves import CurveReader, Seed
from rlcli.results.groups import Group, Member, group_members
from rlcli.results.references import Reference, choose_references, note_unused
from rlcli.runs.metric_labels import EVALUATION, choose_best
from rlcli.runs.statistics import RESAMPLES

PROFILE = np.linspace(0, 1.5, 61)  # scores at which profiles are computed


class ComparisonSettings(NamedTuple):
    """The options of `rlcli.compare`."""

    result: str
    metric: str | None
    threshold: float | None
    group: str | None  # see `group_members`
    references: Mapping[str, Reference]  # of the user, see `choose_reference`
    allow_differences: bool


class Sample(NamedTuple):
    """The seeds of a group in one environment, with steps and seconds as x."""

    group: Group
    by_steps: Sequence[Seed]
    by_seconds: Sequence[Seed]
    results: np.ndarray  # [seeds]


def compare_members(
    members: Sequence[Member], settings: ComparisonSettings, notes: list[str]
) -> dict[str, Any]:
    """What `rlcli.compare` returns."""
    metric, samples = read_samples(members, settings, notes)
    notes += note_unused(settings.references, members)
    overall = None
    if len(samples) > 1 or settings.references:
        overall = compare_overall(samples, metric, settings.references, notes)
    return {
        "result": settings.result,
        "y": metric,
        "threshold": settings.threshold,
        "resamples": RESAMPLES,
        "environments": [
            compare_environment(environment, each, metric, settings.threshold)
            for environment, each in samples.items()
        ],
        "overall": overall,
        "notes": [*dict.fromkeys(notes)],
    }


def read_samples(
    members: Sequence[Member], settings: ComparisonSettings, notes: list[str]
) -> tuple[str, dict[str, list[Sample]]]:
    """The metric, and by environment the seeds of each group that has results.

    Refuses runs that were not made in the same way.
    """
    by_environment = _split(members, notes)
    evaluation = _evaluation_options(settings)
    differences = {
        environment: protocol.find_recipe_differences(each, evaluation)
        for environment, each in by_environment.items()
    }
    protocol.check_protocol(differences, notes, settings.allow_differences)
    members = [*itertools.chain(*by_environment.values())]
    groups = group_members(members, settings.group)
    reader = CurveReader(members, settings.metric, notes, points=1)
    samples = {
        environment: collect_samples(reader, groups, environment, settings.result)
        for environment in by_environment
    }
    early = {
        environment: protocol.find_early_ends(
            [seed for sample in each for seed in sample.by_steps]
        )
        for environment, each in samples.items()
    }
    protocol.check_protocol(early, notes, settings.allow_differences)
    return reader.metric, {name: each for name, each in samples.items() if each}


def _evaluation_options(settings: ComparisonSettings) -> Sequence[str]:
    """The options of evaluations on which the results depend."""
    if not (settings.metric or EVALUATION).startswith(EVALUATION):
        return ()
    is_last = settings.result == "last" and settings.threshold is None
    return ("episodes",) if is_last else ("episodes", "every")


def _split(members: Sequence[Member], notes: list[str]) -> dict[str, list[Member]]:
    """The runs of each environment; a run without a readable recipe is left out."""
    by_environment: dict[str, list[Member]] = {}
    for member in members:
        if member.environment is None:
            notes.append(f"`{member.folder}` left out: its recipe cannot be read")
        else:
            by_environment.setdefault(member.environment, []).append(member)
    return by_environment


def collect_samples(
    reader: CurveReader, groups: Sequence[Group], environment: str, result: str = "last"
) -> list[Sample]:
    """The groups with results in an environment."""
    samples, metric = [], reader.metric
    for group in groups:
        own = group.within(environment)
        by_steps = reader.read_seeds(own, metric, "steps")
        if by_steps:
            by_seconds = reader.read_seeds(own, metric, "seconds")
            best = choose_best(metric) or max
            results = np.array([_result(seed, result, best) for seed in by_steps])
            samples.append(Sample(own, by_steps, by_seconds, results))
    return samples


def _result(seed: Seed, result: str, best: Callable[..., float]) -> float:
    """The result of a seed: its last or best value, or the mean over steps."""
    if result == "best":
        return float(best(seed.y))
    if result == "auc" and len(seed.x) > 1:
        return float(np.trapezoid(seed.y, seed.x) / (seed.x[-1] - seed.x[0]))
    return float(seed.y[-1])


def compare_environment(
    environment: str, samples: Sequence[Sample], metric: str, threshold: float | None
) -> dict[str, Any]:
    """The results of the groups of an environment, with their statistics."""
    estimates = {
        "mean": aggregates.mean,
        "median": aggregates.median_over_seeds,
        "iqm": aggregates.iqm,
    }
    rows = []
    for sample in samples:
        row: dict[str, Any] = {
            "group": sample.group.label,
            "runs": [str(member.folder) for member in sample.group.members],
            "seeds": len(sample.results),
            "results": sample.results.tolist(),
        }
        for name, statistic in estimates.items():
            row[name] = _as_dict(aggregates.estimate(statistic, [sample.results]))
        if threshold is not None:
            is_least = choose_best(metric) is min
            for x, seeds in (
                ("steps", sample.by_steps),
                ("seconds", sample.by_seconds),
            ):
                row[f"{x}_to_threshold"] = _reach(seeds, threshold, is_least=is_least)
        rows.append(row)
    sign = -1.0 if choose_best(metric) is min else 1.0
    scores = {sample.group.label: [sign * sample.results] for sample in samples}
    return {
        "environment": environment,
        "groups": rows,
        "improvement": _improvements(scores),
    }


def _reach(
    seeds: Sequence[Seed], threshold: float, *, is_least: bool
) -> dict[str, Any]:
    """How many seeds reach a threshold, and the median of the first x at which they do.

    The median counts seeds that do not reach it as infinite; None if it is. `is_least`:
    less is better, so they reach it from above.
    """
    reached = [
        seed.x[seed.y <= threshold if is_least else seed.y >= threshold]
        for seed in seeds
    ]
    firsts = [float(x[0]) if len(x) else math.inf for x in reached]
    # NumPy would subtract infinities.
    median = statistics.median(firsts) if firsts else math.inf
    return {
        "median": median if math.isfinite(median) else None,
        "reached": sum(map(math.isfinite, firsts)),
        "seeds": len(seeds),
    }


def collect_members(samples: Mapping[str, Sequence[Sample]]) -> dict[str, list[Member]]:
    """The runs of all groups in each environment."""
    return {
        environment: [member for sample in each for member in sample.group.members]
        for environment, each in samples.items()
    }


def compare_overall(
    samples: Mapping[str, Sequence[Sample]],
    metric: str,
    given: Mapping[str, Reference],
    notes: list[str],
) -> dict[str, Any] | None:
    """Statistics of normalized results.

    None, and a note, if an environment has no reference, or no group is complete.
    """
    references, unknown = choose_references(collect_members(samples), given, metric)
    if unknown:
        names = ", ".join(f"`{each}`" for each in unknown)
        verb = "has" if len(unknown) == 1 else "have"
        notes.append(
            f"no statistics over environments: {names} {verb} no reference scores for "
            f"these options and this metric; `--reference {unknown[0]}=LOW,HIGH` sets "
            "the values that become 0 and 1"
        )
        return None
    scores: dict[str, list[np.ndarray]] = {}
    for environment, reference in references.items():
        for sample in samples[environment]:
            score = reference.normalize(sample.results)
            scores.setdefault(sample.group.label, []).append(score)
    complete = {
        label: each for label, each in scores.items() if len(each) == len(samples)
    }
    notes += [
        f"`{label}` is not compared over environments: it lacks runs"
        for label in scores
        if label not in complete
    ]
    if not complete:
        notes.append(
            "no group has runs in all environments: group by `updater.name` or `name`"
        )
        return None
    return {
        "normalization": {name: [*each] for name, each in references.items()},
        "groups": [_overall_row(label, each) for label, each in complete.items()],
        "improvement": _improvements(complete),
    }


def _overall_row(label: str, scores: Scores) -> dict[str, Any]:
    estimates = {
        "mean": aggregates.mean,
        "median": aggregates.median_over_environments,
        "iqm": aggregates.iqm,
        "optimality_gap": aggregates.optimality_gap,
    }
    estimate = partial(aggregates.estimate, scores=scores)
    above = [estimate(aggregates.fraction_above(score)) for score in PROFILE]
    intervals = [each.ci95 for each in above if each.ci95 is not None]
    return {
        "group": label,
        "seeds": [len(each) for each in scores],
        "results": np.concatenate(scores).tolist(),
        **{name: _as_dict(estimate(each)) for name, each in estimates.items()},
        "profile": {
            "score": PROFILE.tolist(),
            "fraction": [each.value for each in above],
            "low": [low for low, _ in intervals] or None,
            "high": [high for _, high in intervals] or None,
        },
    }


def _improvements(scores: Mapping[str, Scores]) -> list[dict[str, Any]]:
    """The probability of improvement of each pair of groups."""
    return [
        {
            "first": first,
            "second": second,
            **_as_dict(aggregates.estimate_improvement(scores[first], scores[second])),
        }
        for first, second in itertools.combinations(scores, 2)
    ]


def _as_dict(estimate: Estimate) -> dict[str, Any]:
    ci95 = estimate.ci95
    return {"value": estimate.value, "ci95": None if ci95 is None else [*ci95]}
