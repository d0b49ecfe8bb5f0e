"""Evaluator: builds an `Evaluator` of whole episodes from a recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rlcli import registry
from rlcli.assembly import build, build_environment
from rlcli.loop.episodes import Evaluator, parallel_environments
from rlcli.recipe import Recipe
from rlcli.types import Clock


def make_evaluator(
    recipe: Recipe,
    seeds: Sequence[int],
    episodes: int,
    *,
    explore: bool = False,
    clock: Clock | None = None,
) -> Evaluator:
    """Builds an evaluator of `episodes`, rounded up to equal shares per environment."""
    facts = registry.find("environment", recipe.environment.name).facts
    num_envs = parallel_environments(episodes, bool(facts.get("adapter")))
    small = dataclasses.replace(recipe, num_envs=num_envs)
    clock = clock or Clock.zero()
    environment = build_environment(small, len(seeds), clock)
    _, agent = build(recipe, seeds).parts(clock)
    share = -(-episodes // num_envs)
    return Evaluator(environment, agent.policy, seeds, share, explore=explore)
