"""Preprocessing: splits a network's preprocessing between environment and network.

The environment applies the functions up to the last frame stack, so that all functions
of an updater share the stored frames. The network applies the rest.
"""

from collections.abc import Callable, Sequence

import gymnasium
import jax

from rlcli.assembly.build_part import build_part
from rlcli.networks.inputs import Pair
from rlcli.networks.torsos import Torso
from rlcli.preprocessing import ObservationFunction, Preprocess, compose
from rlcli.recipe import NetworkSpec, Part, Recipe
from rlcli.types import START, ArrayTree


def prepare_torso(torso: Torso, steps: Sequence[Preprocess]) -> Torso:
    """Returns the torso with preprocessing in front of its input reader."""

    def input_reader(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
        new_space, preprocess = _batch_preprocessing(steps, space)
        read = torso.input_reader(new_space)
        return lambda obs: read(preprocess(obs))

    return torso._replace(input_reader=input_reader)


def prepare_forward_pass(
    forward: Callable, steps: Sequence[Preprocess], space: gymnasium.Space
) -> Callable:
    """Returns a user's forward pass with preprocessing in front of it."""
    _, preprocess = _batch_preprocessing(steps, space)
    if isinstance(space, Pair):
        return lambda *pair: forward(*preprocess(pair))
    return lambda obs: forward(preprocess(obs))


def preprocess_space(
    steps: Sequence[Preprocess], space: gymnasium.Space
) -> gymnasium.Space:
    """The space of preprocessed observations, or of pairs with them."""
    return _batch_preprocessing(steps, space)[0]


def _batch_preprocessing(
    steps: Sequence[Preprocess], space: gymnasium.Space
) -> tuple[gymnasium.Space, ObservationFunction]:
    """Composes the functions for a batch `[N, ...]` of observations or pairs."""
    if isinstance(space, Pair):
        visible, action = space.spaces
        new_space, function = compose(steps, visible)
        batched = jax.vmap(function)
        return Pair(new_space, action), lambda pair: (batched(pair[0]), pair[1])
    new_space, function = compose(steps, space)
    return new_space, jax.vmap(function)


def environment_preprocessing(recipe: Recipe) -> list[Preprocess]:
    """The functions that the environment applies, up to the last frame stack."""
    specs = [(name, e) for name, e in recipe.network.items() if e.part is not None]
    stacked = [
        (name, spec.preprocess[: _stack_boundary(recipe, spec)]) for name, spec in specs
    ]
    first, environment_steps = stacked[0]
    for name, other_steps in stacked[1:]:
        if other_steps != environment_steps:
            raise recipe.error(
                ("network", name, "preprocess"),
                f"networks `{first}` and `{name}` stack different frames",
                "all networks share the environment's frame stack: give both the same "
                "`preprocess` up to their last frame stack",
            )
    return _build(recipe, environment_steps)


def network_preprocessing(recipe: Recipe, spec: NetworkSpec) -> list[Preprocess]:
    """The functions that the network applies to the environment's observations."""
    begin = max(_stack_boundary(recipe, spec) - 1, 0)
    return _build(recipe, spec.preprocess[begin:])


def _stack_boundary(recipe: Recipe, spec: NetworkSpec) -> int:
    """The index after the last function that stacks frames."""
    steps = _build(recipe, spec.preprocess)
    return max((i + 1 for i, step in enumerate(steps) if step.frames > 1), default=0)


def _build(recipe: Recipe, parts: Sequence[Part]) -> list[Preprocess]:
    place = ("network",)
    return [build_part(part, START.clock, recipe, place=place) for part in parts]
