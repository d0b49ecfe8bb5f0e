"""What the recipe's networks make of observations, and where.

Up to the last function with a memory it is the environment that shows it; the rest is
the network's. So all functions of an updater share what is remembered.
"""

from __future__ import annotations

from rlcli.assembly.parts import made
from rlcli.loop.progress import midnight
from rlcli.preprocessing import Preprocess
from rlcli.recipe import NetworkSpec, Recipe


def of_environment(recipe: Recipe) -> list[Preprocess]:
    """The functions that the environment sees to, the last one's stack alone."""
    specs = [(name, e) for name, e in recipe.network.items() if e.part is not None]
    each = [(name, spec.preprocess[: _split(recipe, spec)]) for name, spec in specs]
    first, shown = each[0]
    for name, other in each[1:]:
        if other != shown:
            raise recipe.error(
                ("network", name, "preprocess"),
                f"networks `{first}` and `{name}` remember different things",
                "the environment shows all networks the same: give both the same "
                "`preprocess`, up to the last that remembers",
            )
    return [made(part, midnight(), recipe, place=("network",)) for part in shown]


def of_network(recipe: Recipe, spec: NetworkSpec) -> list[Preprocess]:
    """The functions that are left to the network, of what is shown."""
    begin = max(_split(recipe, spec) - 1, 0)
    return [
        made(part, midnight(), recipe, place=("network",))
        for part in spec.preprocess[begin:]
    ]


def _split(recipe: Recipe, spec: NetworkSpec) -> int:
    """Behind the last function with a memory."""
    steps = [made(e, midnight(), recipe, place=("network",)) for e in spec.preprocess]
    return max((i + 1 for i, step in enumerate(steps) if step.frames > 1), default=0)
