"""Builds an `Evaluator` of whole episodes from a recipe."""

from __future__ import annotations

import dataclasses

import jax

from rlcli import registry
from rlcli.assembly import build_environment
from rlcli.assembly.parts import START
from rlcli.loop.evaluator import Evaluator, parallel_environments
from rlcli.loop.progress import Setup, numbers_by_place
from rlcli.recipe import Recipe
from rlcli.types import Array, ArrayTree, Clock, Policy


def make_evaluator(
    recipe: Recipe,
    setup: Setup,
    episodes: int,
    *,
    explore: bool = False,
    clock: Clock = START,
    num_envs: int | None = None,
    policy: Policy | None = None,
) -> Evaluator:
    """Builds an evaluator of `episodes`, rounded up to equal shares per environment.

    `setup` is that of the recipe: its seeds and devices are used, and its policies
    unless there is another `policy`. If each of its seeds has its own numbers, `acting`
    of the evaluator is a pair: the acting state and `numbers_array`, without padding.
    """
    if num_envs is None:
        small = resize_for(recipe, episodes)
    else:
        small = resize(recipe, num_envs)
    environment = build_environment(small, len(setup.seeds), clock)
    return Evaluator(
        environment,
        policy or _training_policy(setup, clock),
        setup.seeds,
        -(-episodes // small.num_envs),
        explore=explore,
        devices=min(setup.devices, jax.local_device_count()),
    )


def resize_for(recipe: Recipe, episodes: int) -> Recipe:
    """The recipe with as many environments as evaluate `episodes` in parallel."""
    facts = registry.find("environment", recipe.environment.name).facts
    is_adapter = bool(facts.get("adapter"))
    return resize(recipe, parallel_environments(episodes, is_adapter))


def resize(recipe: Recipe, num_envs: int) -> Recipe:
    """The recipe with `num_envs` environments, rounded up to whole groups.

    Environments that belong together, such as the agents of one game, are a group. The
    fact `group` of an adapter is a function of its id and options that counts them.
    """
    part = recipe.environment
    count_group = registry.find("environment", part.name).facts.get("group")
    if count_group is not None:
        group = count_group(part.name.partition("/")[2], part.options["options"])
        num_envs = -(-num_envs // group) * group
    return dataclasses.replace(recipe, num_envs=num_envs)


def _training_policy(setup: Setup, clock: Clock) -> Policy:
    """The policy of a setup at a time."""
    if setup.has_own_numbers:
        return _policy_with_numbers(setup, clock)
    return setup.at(clock)[1].policy


def _policy_with_numbers(setup: Setup, clock: Clock) -> Policy:
    """The policy at a time, of which `acting` also has the numbers: `(acting, [N])`."""

    def policy_of(numbers: Array) -> Policy:
        by_place = numbers_by_place(setup, numbers)
        return setup.at(clock._replace(numbers=by_place))[1].policy

    def explore(acting: tuple[ArrayTree, Array], *rest: ArrayTree) -> tuple:
        return policy_of(acting[1]).explore(acting[0], *rest)

    def exploit(acting: tuple[ArrayTree, Array], *rest: ArrayTree) -> tuple:
        return policy_of(acting[1]).exploit(acting[0], *rest)

    policy = setup.at(clock)[1].policy
    return policy._replace(explore=explore, exploit=exploit)
