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
    return dataclasses.replace(
        recipe,
        train=dataclasses.replace(
            train,
            steps=steps,
            start=min(train.start, half),
            log=dataclasses.replace(train.log, every=half),
            evaluate=dataclasses.replace(train.evaluate, every=half, episodes=2),
            checkpoint=dataclasses.replace(train.checkpoint, every=half),
            stop=None,
        ),
    )


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
    return dataclasses.replace(
        recipe,
        train=dataclasses.replace(
            train,
            steps=iterations * size,
            start=min(train.start, half // 2),
            log=dataclasses.replace(
                train.log, every=size * math.ceil(iterations / MAX_LOG_POINTS)
            ),
            evaluate=dataclasses.replace(
                train.evaluate, every=half, episodes=2, render=False
            ),
            checkpoint=dataclasses.replace(train.checkpoint, every=iterations * size),
            stop=None,
            trackers=(),
        ),
    )
