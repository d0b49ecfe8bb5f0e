"""Data: reads the data set that a recipe's replay names, and records its content."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np

from rlcli import registry
from rlcli.assembly.build_part import build_part
from rlcli.assembly.user_errors import explain_user_errors
from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.recipe import Recipe
from rlcli.recipe.annotations import names_data
from rlcli.replays.datasets.names import HASH
from rlcli.types import START, ArrayTree, Environment, Replay, Transition


def read_data(
    recipe: Recipe, environment: Environment, replay: Replay | None
) -> Callable[[], ArrayTree]:
    """Returns a function that reads the data set of a replay; without one, of ()."""
    if replay is None or replay.traits.dataset is None:
        return lambda: ()

    @functools.cache
    def read() -> ArrayTree:
        try:
            owner = f"environment `{recipe.environment.name}`"
            steps = replay.traits.dataset.read(environment.own, owner)
        except RlcliError as error:
            raise recipe.locate_error(("replay",), error) from error
        _check_size(recipe, environment, replay, len(steps.reward))
        _check_frames(recipe, environment, replay, steps)
        return steps

    return read


def _check_size(
    recipe: Recipe, environment: Environment, replay: Replay, steps: int
) -> None:
    """Refuses a data set that does not fit into the replay, or fills no unroll."""
    size = recipe.train.unroll * environment.num_envs
    if replay.traits.is_offline or size <= steps <= replay.traits.capacity:
        return
    if steps < size:
        raise recipe.error(
            ("replay",),
            f"{replay.traits.dataset.name} has {steps:,} steps, fewer than one unroll "
            f"of {size:,}",
            "lower `train.unroll` or `environment.num_envs`",
        )
    raise recipe.error(
        ("replay",),
        f"{replay.traits.dataset.name} has {steps:,} steps, but the replay holds only "
        f"{replay.traits.capacity:,}",
        f"raise `replay.capacity` to at least {steps:,}",
    )


def _check_frames(
    recipe: Recipe, environment: Environment, replay: Replay, steps: Transition
) -> None:
    """Refuses steps whose stacks a replay of single frames would not rebuild.

    Each environment gets consecutive steps, which may begin within an episode: the
    frames before them are then missing.
    """
    if (stack := replay.traits.frame_stack) is None:
        return
    size = recipe.train.unroll * environment.num_envs
    share = len(steps.reward) // size * recipe.train.unroll
    rows = np.arange(share * environment.num_envs)
    begins = np.asarray(steps.first)[rows] | (rows % share == 0)
    start = np.maximum.accumulate(np.where(begins, rows, 0))  # of the episode
    axis = stack.axis if stack.axis < 0 else stack.axis + 1

    def refuse(differs: np.ndarray, what: str) -> None:
        wrong = np.flatnonzero(differs.reshape(len(rows), -1).any(axis=1))
        if len(wrong):
            raise recipe.error(
                ("replay",),
                f"step {wrong[0]:,} of {replay.traits.dataset.name} is not "
                f"the stack of frames that the replay would rebuild: {what}",
                "store whole observations (`replay: uniform`), or use "
                "`num_envs: 1` and data with this stack",
            )

    observations, next_observations = (
        jax.tree.leaves(action_masks.remove_mask(obs))
        for obs in (steps.obs, steps.next_obs)
    )
    for leaf, next_leaf in zip(observations, next_observations, strict=True):
        split = np.split(np.asarray(leaf)[rows], stack.frames, axis)
        *older, newest = split
        for back, frame in enumerate(reversed(older), 1):
            rebuilt = newest[np.maximum(rows - back, start)]
            if stack.padding == "zero":
                rebuilt[rows - back < start] = 0
            what = f"the frame {back} before its newest one is not that of the step"
            refuse(frame != rebuilt, f"{what} {back} before")
        next_split = np.split(np.asarray(next_leaf)[rows], stack.frames, axis)
        kept = zip(split[1:], next_split[:-1], strict=True)
        differs = [(now != later).reshape(len(rows), -1) for now, later in kept]
        refuse(
            np.concatenate([np.zeros((len(rows), 1), bool), *differs], axis=1),
            "the observation after it does not continue its frames",
        )


def record_data(recipe: Recipe) -> Recipe:
    """The recipe with the SHA-256 of its data set, by which resume recognizes it."""
    part = recipe.replay
    if part is None:
        return recipe
    options = dict(part.options)
    parameters = registry.options(registry.find("replay", part.name).factory)
    for parameter in parameters.values():
        source = options[parameter.name]
        if not source or not names_data(parameter.annotation) or HASH in source:
            continue
        with explain_user_errors(recipe):
            sizes = {"window": 1, "unroll": 1, "num_envs": 1}
            replay = build_part(part, START, recipe, sizes)
        try:
            options[parameter.name] += HASH + replay.traits.dataset.digest()
        except RlcliError as error:
            raise recipe.locate_error(("replay",), error) from error
    return dataclasses.replace(recipe, replay=part._replace(options=options))
