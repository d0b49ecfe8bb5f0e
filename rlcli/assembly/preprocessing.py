"""What the recipe's networks make of observations, and where.

Up to the last function with a memory it is the environment that shows it; the rest is
the network's. So all functions of an updater share what is remembered.
"""

from __future__ import annotations

from rlcli.assembly.parts import build_part
from rlcli.preprocessing import Preprocess
from rlcli.recipe import NetworkSpec, Recipe
from rlcli.types import Clock


def environment_preprocessing(recipe: Recipe) -> list[Preprocess]:
    """The functions that the environment sees to, the last one's stack alone."""
    specs = [(name, e) for name, e in recipe.network.items() if e.part is not None]
    stacked = [
        (name, spec.preprocess[: _stack_boundary(recipe, spec)]) for name, spec in specs
    ]
    first, environment_steps = stacked[0]
    for name, other_steps in stacked[1:]:
        if other_steps != environment_steps:
            raise recipe.error(
                ("network", name, "preprocess"),
                f"networks `{first}` and `{name}` remember different things",
                "the environment shows all networks the same: give both the same "
                "`preprocess`, up to the last that remembers",
            )
    return [
        build_part(part, Clock.zero(), recipe, place=("network",))
        for part in environment_steps
    ]


def network_preprocessing(recipe: Recipe, spec: NetworkSpec) -> list[Preprocess]:
    """The functions that are left to the network, of what is shown."""
    begin = max(_stack_boundary(recipe, spec) - 1, 0)
    return [
        build_part(part, Clock.zero(), recipe, place=("network",))
        for part in spec.preprocess[begin:]
    ]


def _stack_boundary(recipe: Recipe, spec: NetworkSpec) -> int:
    """Behind the last function with a memory."""
    steps = [
        build_part(e, Clock.zero(), recipe, place=("network",)) for e in spec.preprocess
    ]
    return max((i + 1 for i, step in enumerate(steps) if step.frames > 1), default=0)
