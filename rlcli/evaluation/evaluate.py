"""Evaluation: how good what was learnt is, over whole episodes and all seeds."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from rlcli.assembly import build, build_environment, out_of_memory
from rlcli.errors import RlcliError, quote
from rlcli.evaluation.evaluator import make_evaluator
from rlcli.loop.episodes import MAX_EPISODE_STEPS
from rlcli.recipe import Recipe, documents, load_recipe, resolve
from rlcli.runs import snapshots
from rlcli.runs.frozen import count_frozen
from rlcli.runs.locate import locate_policy
from rlcli.runs.snapshots import Snapshot
from rlcli.runs.statistics import episode_summary, summary
from rlcli.spaces import describe
from rlcli.types import Clock


def eval(
    path: str | Path,
    *,
    best: bool = False,
    episodes: int = 100,
    seed: int = 0,
    explore: bool = False,
    environment: str | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """Plays `episodes` whole episodes with the policy of each seed of a run.

    Exactly ⌈episodes / n⌉ in each of n parallel environments, so that short episodes
    are not preferred.

    Args:
        path: a run's folder, a policy file or a checkpoint.
        best: plays the best policies by evaluation instead of the latest.
        seed: of the episodes; the same seed plays the same ones.
        explore: acts as in training instead of greedily.
        environment: plays this one instead of the run's: a name, or what a recipe has
            under `environment:`, such as `{name: Pendulum-v1, length: 1.3}`.
        trust: imports what the file's recipe names beyond rlcli and its plug-ins.

    Returns:
        `{"run", "checkpoint", "environment", "episodes", "seeds": [{"seed", "mean",
        "std", "min", "max", "length", "frozen"}], "return": {"mean", "iqm", "ci95":
        [lo, hi], "frozen"}}`; `ci95` is a bootstrap over seeds, of the interquartile
        mean. `frozen` of a seed says at which step and why it was frozen (`{"step",
        "reason"}`), or is None; that of `return` is how many of the seeds are, all of
        which count in it.
    """
    run, file = locate_policy(path, best=best)
    snapshot = snapshots.load_snapshot(file, trust=trust)
    recipe = replace_environment(snapshot.recipe, environment)
    setup = build(recipe, snapshot.seeds)
    acting = snapshots.restore_acting(snapshot, setup, file)
    player = make_evaluator(
        recipe,
        snapshot.seeds,
        episodes,
        explore=explore,
        clock=snapshot_clock(snapshot),
    )
    with out_of_memory.play_within(recipe, player, acting):
        result = player.evaluate(acting, evaluation_index=seed)
    if result.num_cut and not isinstance(recipe.time_limit, int):
        print(
            f"warning: {result.num_cut} of {result.returns.size} episodes were cut at "
            f"{MAX_EPISODE_STEPS:,} steps: the environment has no time limit",
            file=sys.stderr,
        )
    _warn(snapshot, recipe, result.returns)
    seeds = [
        {
            "seed": number,
            **episode_summary(returns, lengths),
            "frozen": _frozen(snapshot, number),
        }
        for number, returns, lengths in zip(
            snapshot.seeds, result.returns, result.lengths, strict=True
        )
    ]
    per_seed = result.returns.shape[1]
    for row in seeds:
        del row["episodes"]
    total = summary(np.array([row["mean"] for row in seeds]))
    return {
        "run": str(run.folder) if run else None,
        "checkpoint": str(file),
        "environment": recipe.environment.name,
        "episodes": per_seed,
        "seeds": seeds,
        "return": {**total, "frozen": len(snapshot.frozen)},
    }


def _frozen(snapshot: Snapshot, seed: int) -> dict[str, Any] | None:
    """When and why a seed was frozen, if it was."""
    found = snapshot.frozen.get(seed)
    return None if found is None else {"step": found.step, "reason": found.reason}


def _warn(snapshot: Snapshot, recipe: Recipe, returns: np.ndarray) -> None:
    """Warns of what makes the numbers other than they look, on stderr."""
    if snapshot.frozen:
        count = count_frozen(len(snapshot.frozen), len(snapshot.seeds))
        print(
            f"warning: {count}: mean, IQM and interval are over all seeds, the frozen "
            "ones with the last parameters they had",
            file=sys.stderr,
        )
    if not np.all(np.isfinite(returns)):
        print(
            f"warning: environment `{recipe.environment.name}` returned rewards that "
            f"are not finite, in {np.sum(~np.isfinite(returns))} of {returns.size} "
            "episodes",
            file=sys.stderr,
        )


def replace_environment(recipe: Recipe, environment: str | None) -> Recipe:
    """The recipe with another environment, if one is named, whose spaces are alike."""
    if environment is None:
        return recipe
    text = f"environment: {environment}"
    section = documents.load_document(text, "--environment").data["environment"]
    if isinstance(section, str):
        section = {"name": section}
    if isinstance(section, dict):  # as many as before: evolution has a member for each
        section = {"num_envs": recipe.num_envs, **section}
    other_recipe = load_recipe({**resolve(recipe), "environment": section})
    own_environment, other_environment = (
        build_environment(either, 1, Clock.zero()) for either in (recipe, other_recipe)
    )
    for what in ("observation", "action"):
        ours, theirs = getattr(own_environment, what), getattr(other_environment, what)
        if (ours.shape, getattr(ours, "n", None)) != (
            theirs.shape,
            getattr(theirs, "n", None),
        ):
            raise RlcliError(
                f"the policy cannot play {quote(environment)}: its {what} space is "
                f"{describe(theirs)}, and it learnt with {describe(ours)}",
                f"it learnt in `{recipe.environment.name}`",
            )
    return dataclasses.replace(other_recipe, train=recipe.train)


def snapshot_clock(snapshot: Snapshot) -> Clock:
    """The time at which a policy was taken: how much it explores depends on it."""
    return Clock.zero()._replace(
        steps=jnp.float32(max(snapshot.steps)),
        episodes=jnp.float32(max(snapshot.episodes)),
    )
