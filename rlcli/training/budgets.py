"""Budgets: recipes that every part of a run sees, but that train for seconds only."""

import dataclasses
import itertools
import math

from rlcli.errors import RlcliError
from rlcli.recipe import Recipe

MIN_STEPS = 512
MIN_UPDATES = 12  # so that some are before and after each stop of `verify-resume`
MIN_ITERATIONS = 4
MAX_LOG_POINTS = 2_000


def smoke_recipe(recipe: Recipe, *, updates: int = 4, least_steps: int = 256) -> Recipe:
    """The recipe with a budget of seconds: every part runs, the agent hardly learns."""
    from rlcli.assembly import build  # here: imports JAX

    train = recipe.train
    unroll_size = train.unroll * recipe.num_envs
    iterations = math.ceil(
        updates / min(1, train.updates)
    )  # so that some include updates
    if recipe.replay is not None:  # it may have to wait for long sequences
        early = dataclasses.replace(train, start=0)
        agent = build(dataclasses.replace(recipe, train=early)).agent
        numbers = itertools.count(iterations)
        iterations = next(
            number for number in numbers if agent.count_updates(number) >= updates
        )
    steps = max(iterations * unroll_size, least_steps)
    half = max(1, steps // 2)
    start = min(train.start, half)
    return _with_budget(recipe, steps, start, log=half, evaluate=half, checkpoint=half)


def short_recipe(recipe: Recipe, steps: int | None) -> Recipe:
    """The recipe with a small budget, and a log point after every iteration.

    By default there are at least 512 steps and 12 updates. It has no trackers.
    """
    train = recipe.train
    size = train.unroll * recipe.num_envs
    if steps is None:
        iterations = math.ceil(MIN_UPDATES / min(1, train.updates))
        iterations = max(iterations, math.ceil(MIN_STEPS / size))
    else:
        iterations = steps // size
    if iterations < MIN_ITERATIONS:
        raise RlcliError(
            f"{steps:,} steps are too few: an iteration of this recipe is {size:,}",
            f"`--steps {MIN_ITERATIONS * size}` or more",
        )
    half = iterations // 2 * size
    recipe = _with_budget(
        recipe,
        iterations * size,
        min(train.start, half // 2),
        log=size * math.ceil(iterations / MAX_LOG_POINTS),
        evaluate=half,
        checkpoint=iterations * size,
    )
    evaluate = dataclasses.replace(recipe.train.evaluate, render=False)
    train = dataclasses.replace(recipe.train, evaluate=evaluate, trackers=())
    return dataclasses.replace(recipe, train=train)


def _with_budget(
    recipe: Recipe, steps: int, start: int, *, log: int, evaluate: int, checkpoint: int
) -> Recipe:
    """The recipe with these steps and periods, and two episodes in an evaluation."""
    replace, train = dataclasses.replace, recipe.train
    train = replace(
        train,
        steps=steps,
        start=start,
        log=replace(train.log, every=log),
        evaluate=replace(train.evaluate, every=evaluate, episodes=2),
        checkpoint=replace(train.checkpoint, every=checkpoint),
        stop=None,
    )
    return replace(recipe, train=train)
