"""Preprocessing: splits a network's preprocessing between environment and network.

The environment applies the functions up to the last frame stack, so that all functions
of an updater share the stored frames. The network applies the rest.
"""

from rlcli.assembly.build_part import build_part
from rlcli.preprocessing import Preprocess
from rlcli.recipe import NetworkSpec, Recipe
from rlcli.types import START


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
    return [
        build_part(part, START.clock, recipe, place=("network",))
        for part in environment_steps
    ]


def network_preprocessing(recipe: Recipe, spec: NetworkSpec) -> list[Preprocess]:
    """The functions that the network applies to the environment's observations."""
    begin = max(_stack_boundary(recipe, spec) - 1, 0)
    return [
        build_part(part, START.clock, recipe, place=("network",))
        for part in spec.preprocess[begin:]
    ]


def _stack_boundary(recipe: Recipe, spec: NetworkSpec) -> int:
    """The index after the last function that stacks frames."""
    steps = [
        build_part(e, START.clock, recipe, place=("network",)) for e in spec.preprocess
    ]
    return max((i + 1 for i, step in enumerate(steps) if step.frames > 1), default=0)
