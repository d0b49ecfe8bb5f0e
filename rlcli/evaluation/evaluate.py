"""Evaluate: the returns of trained policies over whole episodes and all seeds."""

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.assembly import build, build_environment, out_of_memory
from rlcli.errors import RlcliError, quote
from rlcli.evaluation.make_evaluator import make_evaluator, on_grid, without_grid
from rlcli.evaluation.targets import check_whole
from rlcli.loop.evaluator import MAX_EPISODE_STEPS
from rlcli.quoting import printable
from rlcli.recipe import Recipe, documents, load_recipe, resolve
from rlcli.recipe.merging import merge_part
from rlcli.recipe.varied_options import RANGES
from rlcli.registry.paths import resolves
from rlcli.runs import snapshots
from rlcli.runs.formatting import format_number, format_number_of
from rlcli.runs.frozen import format_frozen_count
from rlcli.runs.locate import locate_policy
from rlcli.runs.result import Result, Table
from rlcli.runs.snapshots import Snapshot
from rlcli.runs.statistics import episode_summary, info_summary, summary
from rlcli.runs.study_record import find_study
from rlcli.schedules import RandomNumber
from rlcli.spaces import describe
from rlcli.types import Clock, Inputs


@resolves("path")
def eval(
    path: str | Path,
    *,
    best: bool = False,
    episodes: int = 100,
    seed: int = 0,
    explore: bool = False,
    environment: str | None = None,
    trust: bool | None = None,
) -> Result:
    """Evaluates the policy of each seed of a run over `episodes` whole episodes.

    Each of n parallel environments runs exactly ⌈episodes / n⌉ episodes, so that short
    episodes are not overrepresented.

    Args:
        path: a run's folder, a policy file or a checkpoint, or the folder of a
            study; that of a sweep is its winner, or its best run so far.
        best: uses the policy of each seed's best evaluation instead of the latest.
        seed: random seed of the episodes.
        explore: explores as in training instead of acting greedily.
        environment: an environment to use instead of the run's: a name, or the
            `environment` section of a recipe: `{name: Pendulum-v1, length: 1.3}`.
        trust: whether the file's recipe may import code from outside rlcli and
            plug-ins. By default that of your own runs may, see `rlcli.trust`.

    Returns:
        `{"run", "checkpoint", "environment", "episodes", "seeds": [{"seed", "mean",
        "std", "min", "max", "length", "info", "parameters", "frozen", "returns": […],
        "lengths": […]}], "return": {"mean", "iqm", "ci95": [lo, hi], "frozen"},
        "info": {name: {"mean", "ci95"}}, "parameters": {name: [{"from", "to",
        "episodes", "mean", "iqm", "ci95"}]}}`; `returns` and `lengths` are those of
        every episode, and `info` are the numbers that the environment logs, such as
        `success`: the interval of a rate over all episodes is Wilson's. `parameters`
        are numbers of the environment that differ between episodes: of a seed that of
        every episode, and of all seeds the returns by value, or in five ranges of equal
        probability. `ci95` of the
        return is a bootstrap interval of the interquartile mean over seeds; None for a
        single seed. `frozen` of a seed is
        `{"step", "reason"}`, or None; `frozen` of `return` is the number of frozen
        seeds, which the statistics include.

        For a study `{"cells": […]}`: for each run that has a
        policy the same fields and `values`: what tells it from the others.
    """
    keywords = {**locals()}  # those of `_evaluate`, and the path
    check_whole("episodes", episodes)
    study = find_study(keywords.pop("path"))
    if study is None or study.is_search:
        return Result(_evaluate(path, **keywords), _tables)
    found = []
    for cell in study.cells:
        if not cell.exists:
            continue
        try:
            locate_policy(cell.folder, best=best)
        except RlcliError as error:
            print(f"note: {error.message}", file=sys.stderr)
        else:
            result = _evaluate(cell.folder, **keywords)
            found.append({"values": dict(cell.values), **result})
    if not found:
        raise RlcliError(
            f"no run of `{path}` has a policy yet", "`rlcli resume` continues them"
        )
    return Result({"cells": found}, _tables)


def _tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """The seeds of an evaluation in a notebook."""
    columns = ("mean", "std", "min", "max", "length")
    for each in result.get("cells", [result]):
        rows = [
            [str(row["seed"]), *(format_number(row[name]) for name in columns)]
            for row in each["seeds"]
        ]
        total = each["return"]
        numbers = (total["mean"], total["iqm"], *(total["ci95"] or (None, None)))
        mean, iqm, low, high = map(format_number, numbers)
        interval = f", 95 % interval {low} to {high}" if total["ci95"] else ""
        episodes = format_number_of(each["episodes"], "episode")
        title = f"{episodes} on {each['environment']}: mean {mean}"
        yield Table(f"{title}, IQM {iqm}{interval}", ["seed", *columns], rows)


def _evaluate(
    path: str | Path,
    *,
    best: bool,
    episodes: int,
    seed: int,
    explore: bool,
    environment: str | None,
    trust: bool | None,
) -> dict[str, Any]:
    """Evaluates one run or policy file, as `eval`."""
    run, file = locate_policy(path, best=best)
    snapshot = snapshots.load_snapshot(file, trust=trust)
    recipe = replace_environment(snapshot.recipe, environment)
    setup = build(recipe, snapshot.seeds)
    acting = snapshots.restore_acting(snapshot, setup, file)
    evaluator = make_evaluator(recipe, setup, episodes, explore=explore)
    inputs = snapshot_inputs(snapshot)
    with out_of_memory.limit_evaluation_memory(recipe, evaluator, acting):
        result = evaluator.evaluate(acting, evaluation_index=seed, inputs=inputs)
    place = str(run.folder if run else file)
    for warning in _find_faults(place, snapshot, recipe, result):
        print(f"warning: {warning}", file=sys.stderr)
    parameters = {k.removesuffix("_"): v for k, v in result.parameters.items()}
    each = {
        key.removesuffix("_"): source for key, source in on_grid(recipe).each.items()
    }
    seeds = []
    for row, number in enumerate(snapshot.seeds):
        returns, lengths = result.returns[row], result.lengths[row]
        statistics = episode_summary(returns, lengths)
        del statistics["episodes"]  # the same of all seeds
        frozen = snapshot.frozen.get(number)
        seeds.append(
            {
                "seed": number,
                **statistics,
                "info": info_summary({k: v[row] for k, v in result.info.items()}),
                "parameters": {k: v[row].tolist() for k, v in parameters.items()},
                "frozen": frozen and {"step": frozen.step, "reason": frozen.reason},
                "returns": returns.tolist(),
                "lengths": lengths.astype(int).tolist(),
            }
        )
    total = summary(np.array([row["mean"] for row in seeds]))
    return {
        "run": str(run.folder) if run else None,
        "checkpoint": str(file),
        "environment": recipe.environment.name,
        "episodes": result.returns.shape[1],
        "seeds": seeds,
        "return": {**total, "frozen": len(snapshot.frozen)},
        "info": info_summary(result.info),
        "parameters": return_by_value(result.returns, parameters, each),
    }


def _find_faults(
    place: str, snapshot: Snapshot, recipe: Recipe, result: Any
) -> Iterator[str]:
    """Why results are not those of whole episodes of all seeds."""
    size, infinite = result.returns.size, np.sum(~np.isfinite(result.returns))
    if result.num_cut:
        yield (
            f"{result.num_cut} of {size} episodes were truncated: they had not ended "
            f"after {MAX_EPISODE_STEPS:,} steps, the limit of an evaluation"
        )
    if snapshot.frozen:
        count = format_frozen_count(len(snapshot.frozen), len(snapshot.seeds))
        yield (
            f"{count} in `{printable(place)}`: mean, IQM and interval include all "
            "seeds, frozen seeds with their last parameters"
        )
    if infinite:
        yield (
            f"environment `{recipe.environment.name}` returned rewards that are not "
            f"finite in {infinite} of {size} episodes"
        )


def replace_environment(recipe: Recipe, environment: str | None) -> Recipe:
    """The recipe with another environment, if given, whose spaces have to match."""
    if environment is None:
        return recipe
    text = f"environment: {environment}"
    section = documents.load_document(text, "--environment").data["environment"]
    if isinstance(section, str):
        section = {"name": section}
    data = resolve(recipe)
    data["train"]["evaluate"]["grid"] = None
    if isinstance(section, dict) and "name" not in section:
        section = merge_part("environment", data["environment"], section)
    if isinstance(section, dict):  # the same number: evolution has a member for each
        each = section.get("each")
        lists = each.values() if isinstance(each, dict) else ()
        longest = max((len(v) for v in lists if isinstance(v, list)), default=1)
        given = section.get("num_envs", recipe.num_envs)
        if isinstance(given, int):
            section = {**section, "num_envs": max(given, longest)}
    other_recipe = load_recipe({**data, "environment": section})
    own_spaces, other_spaces = (
        build_environment(each, 1).own for each in (recipe, other_recipe)
    )
    for what in ("observation", "action"):
        own, other = getattr(own_spaces, what), getattr(other_spaces, what)
        sizes = [(each.shape, getattr(each, "n", None)) for each in (own, other)]
        if sizes[0] != sizes[1]:
            raise RlcliError(
                f"the policy cannot act in {quote(environment)}: its {what} space is "
                f"{describe(other)}, but the policy was trained with {describe(own)}",
                f"it was trained in `{recipe.environment.name}`",
            )
    # The grid is of the environment that it replaces.
    return without_grid(dataclasses.replace(other_recipe, train=recipe.train))


def snapshot_inputs(snapshot: Snapshot, seed: int | None = None) -> Inputs:
    """The inputs of a snapshot: those of each seed, `[S]`, or that of an index."""
    steps = np.array(snapshot.steps, np.float32)
    episodes = np.array(snapshot.episodes, np.float32)
    if seed is not None:
        steps, episodes = steps[seed, ...], episodes[seed, ...]
    clock = Clock.zero(*steps.shape)
    return Inputs(clock._replace(steps=steps, episodes=episodes))


_GROUPS = 5  # of a range of numbers; each has the same probability


def return_by_value(
    returns: np.ndarray, parameters: Mapping[str, np.ndarray], each: Mapping[str, Any]
) -> dict[str, list[dict[str, Any]]]:
    """The returns of episodes, grouped by each parameter of their environment.

    A range of numbers has five groups of equal probability; other values are a group
    each. Groups without an episode are left out, and so are levels.

    Args:
        returns: `[seeds, episodes]`.
        parameters: the numbers of each episode, by name, `[seeds, episodes]`.
        each: the recipe's `environment.each`, from which the numbers are.

    Returns:
        For each name a list of `{"from", "to", "episodes", "mean", "iqm", "ci95"}`, as
        in the `return` of an evaluation: statistics over the means of the seeds.
    """
    return {
        name: list(_group(returns, values, each[name]))
        for name, values in parameters.items()
        if name in each  # not a level, of which there may be thousands
    }


def _group(
    returns: np.ndarray, values: np.ndarray, source: Any
) -> Iterator[dict[str, Any]]:
    """The groups of one parameter, from the lowest values on."""
    if isinstance(source, RandomNumber) and source.distribution in RANGES:
        edges = source.quantile(np.linspace(0, 1, _GROUPS + 1))
        index = np.searchsorted(edges[1:-1], values, side="right")
        bounds = list(itertools.pairwise(edges))
    else:
        found, index = np.unique(values, return_inverse=True)
        index, bounds = index.reshape(values.shape), [(each, each) for each in found]
    for number, (low, high) in enumerate(bounds):
        inside = index == number
        means = [
            row[mask].mean()
            for row, mask in zip(returns, inside, strict=True)
            if mask.any()
        ]
        if means:
            # float32 has seven digits: more would be those of its rounding.
            bounds_of_group = {"from": float(f"{low:.7g}"), "to": float(f"{high:.7g}")}
            yield {**bounds_of_group, "episodes": int(inside.sum()), **summary(means)}
