"""Evaluator: builds an `Evaluator` of whole episodes from a recipe."""

from __future__ import annotations

import dataclasses

from rlcli import registry
from rlcli.assembly import build_environment
from rlcli.assembly.parts import START
from rlcli.loop.episodes import Evaluator, parallel_environments
from rlcli.loop.progress import Setup
from rlcli.recipe import Recipe
from rlcli.types import Clock


def make_evaluator(
    recipe: Recipe,
    setup: Setup,
    episodes: int,
    *,
    explore: bool = False,
    clock: Clock = START,
) -> Evaluator:
    """Builds an evaluator of `episodes`, rounded up to equal shares per environment.

    `setup` is that of the recipe: its policies, seeds and devices are used.
    """
    facts = registry.find("environment", recipe.environment.name).facts
    num_envs = parallel_environments(episodes, bool(facts.get("adapter")))
    small = dataclasses.replace(recipe, num_envs=num_envs)
    environment = build_environment(small, len(setup.seeds), clock)
    _, agent = setup.at(clock)
    return Evaluator(
        environment,
        agent.policy,
        setup.seeds,
        -(-episodes // num_envs),
        explore=explore,
        devices=setup.devices,
    )
