"""Check: checks recipes by building and tracing them."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.recipe import Recipe, check_document, load_recipe
from rlcli.registry.paths import resolves
from rlcli.runs import thread_layout


@resolves(recipes="recipes")
def check(
    recipes: str | Path | Mapping[str, Any] | Sequence[str | Path | Mapping[str, Any]],
    *,
    set: Sequence[str] = (),
) -> builtins.list[dict[str, Any]]:
    """Checks a recipe or several: builds and traces them with shapes only.

    Returns `[{"recipe", "parameters", "memory", "peak_memory", "iterations", "updates",
    "shapes"}]`, for one seed: `memory` of the state in bytes, `shapes` of parameters by
    tree path. `peak_memory` is a lower bound for the whole run with all its seeds: in
    `total` and for each component.

    `set` replaces options of each recipe, such as `train.steps=10_000`. Refuses recipes
    that need more memory than this machine has.
    """
    if isinstance(recipes, str | Path | Mapping):
        recipes = [recipes]
    documents = [check_document(recipe, set) for recipe in recipes]
    thread_layout.apply_for_check(documents)
    return [_check_recipe(load_recipe(document)) for document in documents]


def _check_recipe(parsed_recipe: Recipe) -> dict[str, Any]:
    import math

    import jax

    from rlcli.assembly import memory_usage
    from rlcli.loop.progress import AXES
    from rlcli.training.experiment.together import build_experiments
    from rlcli.xla.temporaries import tree_bytes
    from rlcli.xla.tree_paths import leaves_by_path

    train = parsed_recipe.train
    seeds = range(train.seed, train.seed + train.seeds)
    (experiment,) = build_experiments([parsed_recipe], seeds, is_new=True)
    setup, program = experiment.setup, experiment.program
    shapes = program.check()
    acting = jax.eval_shape(setup.agent.acting, shapes.agent)
    state_bytes = sum(
        tree_bytes(field) // (1 if axis is None else train.seeds)
        for field, axis in zip(shapes, AXES, strict=True)
    )
    peak_memory = {
        item.name.replace(" ", "_"): item.size for item in program.memory if item.size
    }
    return {
        "recipe": parsed_recipe.name,
        "parameters": sum(math.prod(x.shape) for x in jax.tree.leaves(acting))
        // train.seeds,
        "memory": state_bytes,
        "peak_memory": {
            "total": memory_usage.total(program.memory),
            **peak_memory,
        },
        "iterations": parsed_recipe.train.steps // setup.steps,
        "updates": setup.agent.count_updates(parsed_recipe.train.steps // setup.steps),
        "shapes": {
            path: f"{leaf.dtype}{[*leaf.shape[1:]]}"
            for path, leaf in leaves_by_path(acting).items()
        },
    }
