"""Data: reads the data set that a recipe's replay names, and records its content."""

import dataclasses
import functools
from collections.abc import Callable

from rlcli import registry
from rlcli.assembly.build_part import build_part, explain_user_errors
from rlcli.errors import RlcliError
from rlcli.recipe import Recipe
from rlcli.recipe.annotations import has_mark
from rlcli.replays.datasets.names import HASH
from rlcli.types import START, ArrayTree, Environment, Replay


def read_data(
    recipe: Recipe, environment: Environment, replay: Replay | None
) -> Callable[[], ArrayTree]:
    """Returns a function that reads the data set of a replay; without one, of ().

    It refuses a data set that does not fit into the replay, or fills no unroll.
    """
    if replay is None or replay.traits.dataset is None:
        return lambda: ()
    traits = replay.traits
    is_added = not (traits.is_offline or traits.keeps_dataset)  # to its state

    @functools.cache
    def read() -> ArrayTree:
        try:
            owner = f"environment `{recipe.environment.name}`"
            steps = traits.dataset.read(environment.own, owner)
        except RlcliError as error:
            raise recipe.locate_error(("replay",), error) from error
        size, number = recipe.train.unroll * environment.num_envs, len(steps.reward)
        has = f"{traits.dataset.name} has {number:,} steps"
        if number < size and is_added:
            raise recipe.error(
                ("replay",),
                f"{has}, fewer than one unroll of {size:,}",
                "lower `train.unroll` or `environment.num_envs`",
            )
        if number > traits.capacity and is_added:
            raise recipe.error(
                ("replay",),
                f"{has}, but the replay holds only {traits.capacity:,}",
                f"raise `replay.capacity` to at least {number:,}",
            )
        return steps

    return read


def record_data(recipe: Recipe) -> Recipe:
    """The recipe with the SHA-256 of its data set, by which resume recognizes it."""
    part = recipe.replay
    if part is None:
        return recipe
    options = dict(part.options)
    parameters = registry.options(registry.find("replay", part.name).factory)
    for parameter in parameters.values():
        source = options[parameter.name]
        is_data = has_mark(parameter.annotation, "file", "minari")
        if not source or not is_data or HASH in source:
            continue
        with explain_user_errors(recipe):
            sizes = {"window": 1, "unroll": 1, "num_envs": 1}
            replay = build_part(part, START.clock, recipe, sizes)
        try:
            options[parameter.name] += HASH + replay.traits.dataset.digest()
        except RlcliError as error:
            raise recipe.locate_error(("replay",), error) from error
    return dataclasses.replace(recipe, replay=part._replace(options=options))
