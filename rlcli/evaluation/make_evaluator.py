"""Builds an `Evaluator` of whole episodes from a recipe."""

import dataclasses
import math
from collections.abc import Callable

import jax

from rlcli import registry
from rlcli.assembly import build_environment, environment_factory, group_size
from rlcli.loop.evaluator import Evaluator, parallel_environments
from rlcli.loop.progress import Setup
from rlcli.recipe import Recipe
from rlcli.recipe.varied_options import combinations
from rlcli.types import Environment, Inputs, Policy


def make_evaluator(
    recipe: Recipe,
    setup: Setup,
    episodes: int,
    *,
    explore: bool = False,
    num_envs: int | None = None,
    policy: Policy | None = None,
) -> Evaluator:
    """Builds an evaluator of `episodes`, rounded up to equal shares per environment.

    `setup` is that of the recipe: its seeds and devices are used, and its policies
    unless there is another `policy`. If each of its seeds has its own numbers, they are
    those of the evaluator's `inputs`.
    """
    if num_envs is None:
        small = resize_for(on_grid(recipe), episodes)
    else:
        small = resize(recipe, num_envs)
    return Evaluator(
        evaluation_parts(small, setup, policy=policy),
        setup.seeds,
        -(-episodes // small.num_envs),
        explore=explore,
        devices=min(setup.devices, jax.local_device_count()),
    )


def evaluation_parts(
    recipe: Recipe,
    setup: Setup,
    *,
    rendering: bool = False,
    policy: Policy | None = None,
) -> Callable[[Inputs], tuple[Environment, Policy]]:
    """A function of the inputs: the environment of the recipe, a setup's policy.

    The recipe may have another number of environments than the setup, whose policies
    remain: evolution has a member for each environment.
    """
    seeds, recipe = len(setup.seeds), uniform_levels(recipe)
    first = build_environment(recipe, seeds, rendering=rendering)
    factory = environment_factory(recipe, seeds, rendering) if first.pure else None

    def at(inputs: Inputs) -> tuple[Environment, Policy]:
        environment = first if factory is None else factory(inputs)
        return environment, policy or setup.at(inputs)[1].policy

    return at


def uniform_levels(recipe: Recipe) -> Recipe:
    """The recipe whose episodes play all levels equally often."""
    if recipe.levels is None:
        return recipe
    levels = dataclasses.replace(recipe.levels, by="uniform")
    return dataclasses.replace(recipe, levels=levels)


def on_grid(recipe: Recipe) -> Recipe:
    """The recipe whose environments take the combinations of `train.evaluate.grid`."""
    if not (grid := recipe.train.evaluate.grid):
        return recipe
    factory = registry.find("environment", recipe.environment.name).factory
    names = {key: registry.options(factory)[key].name for key in grid}
    varied = {names[key]: values for key, values in combinations(grid).items()}
    return dataclasses.replace(recipe, each={**recipe.each, **varied})


def without_grid(recipe: Recipe) -> Recipe:
    """The recipe without `train.evaluate.grid`."""
    evaluate = dataclasses.replace(recipe.train.evaluate, grid=None)
    train = dataclasses.replace(recipe.train, evaluate=evaluate)
    return dataclasses.replace(recipe, train=train)


def resize_for(recipe: Recipe, episodes: int) -> Recipe:
    """The recipe with as many environments as evaluate `episodes` in parallel.

    Each combination of the values of `train.evaluate.grid` has as many of them.
    """
    facts = registry.find("environment", recipe.environment.name).facts
    is_adapter = bool(facts.get("adapter"))
    grid = recipe.train.evaluate.grid or {}
    multiple = math.prod(map(len, grid.values())) * (group_size(recipe) if grid else 1)
    number = parallel_environments(episodes, is_adapter)
    return resize(recipe, -(-number // multiple) * multiple)


def resize(recipe: Recipe, num_envs: int) -> Recipe:
    """The recipe with `num_envs` environments, rounded up to whole groups.

    Environments that belong together, such as the agents of one game, are a group.
    """
    group = group_size(recipe)
    return dataclasses.replace(recipe, num_envs=-(-num_envs // group) * group)
