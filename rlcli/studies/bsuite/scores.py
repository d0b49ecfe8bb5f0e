"""Scores: bsuite's score of each experiment, from 0 to 1, and their means by tag.

The functions are those of each `bsuite/experiments/*/analysis.py` and of
`summary_analysis.py`, also for runs that have not finished. `tests/studies/bsuite`
compares them on the same results.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlcli.studies.bsuite.experiments import EXPERIMENTS, TAGS

Row = Mapping[str, float]  # of an id, after an episode
Results = Mapping[int, Sequence[Row]]  # of an experiment, by the index of the id
Score = Callable[[Results, int], float]  # of an experiment with this many episodes


def score_experiments(results: Mapping[str, Results]) -> list[dict[str, Any]]:
    """The score of each experiment that has results; None if it cannot be computed."""
    scores = []
    for name, experiment in EXPERIMENTS.items():
        found = {index: rows for index, rows in results.get(name, {}).items() if rows}
        if not found:
            continue
        episodes = experiment.environment.episodes
        value = float(_SCORES[name](found, episodes))
        last = min(max(row["episode"] for row in rows) for rows in found.values())
        scores.append(
            {
                "experiment": name,
                "score": value if np.isfinite(value) else None,
                "type": experiment.tags[0],
                "tags": list(experiment.tags),
                "ids": len(found),
                "all_ids": len(experiment.settings),
                "finished": bool(last >= episodes),
            }
        )
    return scores


def score_tags(scores: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The mean score of each tag, over its experiments; None if it has none."""
    means = []
    for tag in TAGS:
        values = [
            each["score"]
            for each in scores
            if tag in each["tags"] and each["score"] is not None
        ]
        mean = float(np.mean(values)) if values else None
        means.append({"tag": tag, "score": mean, "experiments": len(values)})
    return means


def _mean_at_end(results: Results, episodes: int, value: Callable[[Row], float]) -> Any:
    """The mean over ids of a total, divided by the episodes: at the last common row.

    That is the last row of the id with most episodes, at most `episodes`; ids without
    such a row do not count.
    """
    rows = [row for each in results.values() for row in each]
    last = min(max(row["episode"] for row in rows), episodes)
    values = [value(row) for row in rows if row["episode"] == last]
    return np.mean(values) / last if values else np.nan


def _regret(
    results: Results,
    episodes: int,
    baseline: float,
    total: Callable[[Row], float] = lambda row: row["total_regret"],
) -> float:
    """The mean regret of an episode, from 1 (none) to 0 (at least the baseline)."""
    mean = _mean_at_end(results, episodes, total)
    return float(np.clip((baseline - mean) / baseline, 0, 1))


def _score_cartpole(results: Results, episodes: int) -> float:
    found = _rows_until(results, episodes)
    regret = _regret(
        found, episodes, 1_000, lambda row: 1_000 * row["episode"] - row["raw_return"]
    )
    return 0.5 * (regret + _solved_share(found, 500))


def _score_swingup(results: Results, episodes: int) -> float:
    scores = []
    for group in _groups(results, "cartpole_swingup", "height_threshold"):
        found = _rows_until(group, episodes)
        regret = _regret(
            found, episodes, 700, lambda row: 700 * row["episode"] - row["total_return"]
        )
        scores.append(0.5 * (regret + _solved_share(found, 100)))
    return float(np.mean(scores))


def _score_mnist(results: Results, episodes: int) -> float:
    """Half regret, half accuracy in the last tenth."""
    returns = [
        1 - (b["total_regret"] - a["total_regret"]) / (b["episode"] - a["episode"])
        for rows in results.values()
        for a, b in itertools.pairwise(rows)
        if b["episode"] > 0.9 * episodes
    ]
    accuracy = 0.5 * np.mean(np.add(returns, 1)) if returns else np.nan
    regret = _regret(results, episodes, 1.8)
    return float(0.5 * (regret + accuracy))


def _score_discounting_chain(results: Results, episodes: int) -> float:
    mean = _mean_at_end(results, episodes, lambda row: row["total_return"])
    return float(np.clip(1 - 10 * (1.1 - mean), 0, 1))


def _score_deep_sea(
    results: Results, episodes: int, *, threshold: float = 0.9, first: int = 0
) -> float:
    """The share of sizes that are solved faster than by random exploration."""
    settings = EXPERIMENTS["deep_sea"].settings
    solved = []
    for index, rows in results.items():
        counted = [row for row in rows if first <= row["episode"] <= episodes]
        if not counted:
            continue
        good = [
            row["episode"]
            for row in counted
            if row["total_bad_episodes"] / row["episode"] < threshold
        ]
        limit = 2.0 ** settings[index]["size"] + 100
        solved.append(bool(good) and min(good) < limit)
    return float(np.mean(solved)) if solved else np.nan


def _share_below(
    experiment: str, setting: str, total: Callable[[Row], float], threshold: float
) -> Score:
    """The share of settings whose mean total of an episode is below a threshold."""

    def score(results: Results, episodes: int) -> float:
        groups = _groups(results, experiment, setting)
        means = [_mean_at_end(each, episodes, total) for each in groups]
        return float(np.mean(np.array(means) < threshold))

    return score


def _score_variants(experiment: str, setting: str, base: Score) -> Score:
    """The scores of the settings: half the mean, half the mean minus the deviation."""

    def score(results: Results, episodes: int) -> float:
        groups = _groups(results, experiment, setting)
        scores = [base(each, episodes) for each in groups]
        mean, deviation = np.mean(scores), np.std(scores)
        return float(0.5 * (np.clip(mean, 0, 1) + np.clip(mean - deviation, 0, 1)))

    return score


def _groups(results: Results, experiment: str, setting: str) -> list[Results]:
    """The results by the value of a setting."""
    settings = EXPERIMENTS[experiment].settings
    groups: dict[float, dict[int, Sequence[Row]]] = {}
    for index, rows in results.items():
        groups.setdefault(settings[index][setting], {})[index] = rows
    return [*groups.values()]


def _rows_until(results: Results, episodes: int) -> Results:
    return {
        index: [row for row in rows if row["episode"] <= episodes]
        for index, rows in results.items()
    }


def _solved_share(results: Results, threshold: float) -> float:
    """The share of ids whose best episode is above a threshold."""
    found = filter(None, results.values())
    best = [max(row["best_episode"] for row in rows) for rows in found]
    return float(np.mean(np.array(best) > threshold))


_BASES: Mapping[str, Score] = {
    "bandit": functools.partial(_regret, baseline=0.5),
    "cartpole": _score_cartpole,
    "catch": functools.partial(_regret, baseline=1.6),
    "mnist": _score_mnist,
    "mountain_car": functools.partial(  # against 100 steps in each episode
        _regret,
        baseline=1_000,
        total=lambda row: -100 * row["episode"] - row["raw_return"],
    ),
}
_IMPERFECT = (lambda row: (row["episode"] - row["total_perfect"]) / 0.5), 0.75
_REGRET = (lambda row: row["total_regret"]), 0.5
_SCORES: Mapping[str, Score] = {
    **_BASES,
    **{
        f"{name}_{variant}": _score_variants(f"{name}_{variant}", setting, score)
        for name, score in _BASES.items()
        for variant, setting in (("noise", "noise_scale"), ("scale", "reward_scale"))
    },
    "cartpole_swingup": _score_swingup,
    "deep_sea": _score_deep_sea,
    "deep_sea_stochastic": functools.partial(_score_deep_sea, threshold=0.8, first=100),
    "discounting_chain": _score_discounting_chain,
    "memory_len": _share_below("memory_len", "memory_length", *_IMPERFECT),
    "memory_size": _share_below("memory_size", "num_bits", *_IMPERFECT),
    "umbrella_distract": _share_below("umbrella_distract", "n_distractor", *_REGRET),
    "umbrella_length": _share_below("umbrella_length", "chain_length", *_REGRET),
}
