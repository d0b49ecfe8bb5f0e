"""Evaluation: how good what was learnt is, over whole episodes and all seeds."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from rlcli.assembly import build, environment_of, out_of_memory
from rlcli.errors import RlcliError, quote
from rlcli.evaluation.evaluator import evaluator
from rlcli.loop.episodes import LONGEST
from rlcli.loop.progress import midnight
from rlcli.recipe import Recipe, documents, load, resolved
from rlcli.runs import run_folder, snapshots
from rlcli.runs.frozen import count_frozen
from rlcli.runs.snapshots import Snapshot
from rlcli.runs.statistics import described, summary
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
    run, file = run_folder.locate(path, best=best)
    snapshot = snapshots.load_snapshot(file, trust=trust)
    recipe = elsewhere(snapshot.recipe, environment)
    trained = build(recipe, snapshot.seeds)
    acting = snapshots.acting_of(snapshot, trained, file)
    player = evaluator(
        recipe, snapshot.seeds, episodes, explore=explore, clock=clock_of(snapshot)
    )
    with out_of_memory.play_within(recipe, player, acting):
        played = player.play(acting, occasion=seed)
    if played.cut and not isinstance(recipe.time_limit, int):
        print(
            f"warning: {played.cut} of {played.returns.size} episodes were cut at "
            f"{LONGEST:,} steps: the environment has no time limit",
            file=sys.stderr,
        )
    _warn(snapshot, recipe, played.returns)
    seeds = [
        {
            "seed": number,
            **described(returns, lengths),
            "frozen": _frozen(snapshot, number),
        }
        for number, returns, lengths in zip(
            snapshot.seeds, played.returns, played.lengths, strict=True
        )
    ]
    per_seed = played.returns.shape[1]
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


def elsewhere(recipe: Recipe, environment: str | None) -> Recipe:
    """The recipe with another environment, if one is named, whose spaces are alike."""
    if environment is None:
        return recipe
    text = f"environment: {environment}"
    asked = documents.load(text, "--environment").data["environment"]
    if isinstance(asked, str):
        asked = {"name": asked}
    if isinstance(asked, dict):  # as many as before: evolution has a member for each
        asked = {"num_envs": recipe.num_envs, **asked}
    other = load({**resolved(recipe), "environment": asked})
    own, its = (environment_of(each, 1, midnight()) for each in (recipe, other))
    for what in ("observation", "action"):
        ours, theirs = getattr(own, what), getattr(its, what)
        if (ours.shape, getattr(ours, "n", None)) != (
            theirs.shape,
            getattr(theirs, "n", None),
        ):
            raise RlcliError(
                f"the policy cannot play {quote(environment)}: its {what} space is "
                f"{describe(theirs)}, and it learnt with {describe(ours)}",
                f"it learnt in `{recipe.environment.name}`",
            )
    return dataclasses.replace(other, train=recipe.train)


def clock_of(snapshot: Snapshot) -> Clock:
    """The time at which a policy was taken: how much it explores depends on it."""
    return midnight()._replace(
        steps=jnp.float32(max(snapshot.steps)),
        episodes=jnp.float32(max(snapshot.episodes)),
    )
