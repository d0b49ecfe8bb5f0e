"""Check: checks recipes by building and tracing them."""

import builtins
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.recipe import Recipe, check_document, load_recipe
from rlcli.registry.paths import resolves
from rlcli.runs import thread_layout
from rlcli.types import Network


@resolves(recipes="recipes")
def check(
    recipes: str | Path | Mapping[str, Any] | Sequence[str | Path | Mapping[str, Any]],
    *,
    set: Sequence[str] = (),
) -> builtins.list[dict[str, Any]]:
    """Checks a recipe or several: builds and traces them with shapes only.

    Returns for each recipe, for one seed:

    - `recipe`, `iterations` and `updates`;
    - `parameters`: their number in `training`, and in `acting` alone;
    - `functions`: by group of parameters, their number, whether it `acts`, and the
      `inputs` that its function reads, after preprocessing;
    - `memory`: bytes of the state, and `peak_memory`, a lower bound on those of the
      whole run with all its seeds: in `total` and for each component;
    - `shapes` of the parameters by tree path.

    `set` replaces options of each recipe, such as `train.steps=10_000`. Refuses recipes
    that need more memory than this machine has. Of a recipe with `vary` the options of
    all combinations are checked, and the recipe without them is built.
    """
    if isinstance(recipes, str | Path | Mapping):
        recipes = [recipes]
    documents = [check_document(recipe, set) for recipe in recipes]
    thread_layout.apply_for_check(documents)
    for document in documents:
        for settings in filter(None, document.combinations):
            load_recipe(document.with_settings(*settings))
    return [_check_recipe(load_recipe(document)) for document in documents]


def _check_recipe(parsed_recipe: Recipe) -> dict[str, Any]:
    import jax

    from rlcli.assembly import out_of_memory
    from rlcli.loop.progress import AXES
    from rlcli.runs.sources import learned_in_policy, learned_leaves
    from rlcli.training.experiment.together import build_experiments
    from rlcli.xla.temporaries import tree_bytes
    from rlcli.xla.tree_paths import describe_leaf, leaves_by_path

    train = parsed_recipe.train
    seeds = range(train.seed, train.seed + train.seeds)
    (experiment,) = build_experiments([parsed_recipe], seeds, is_new=True)
    setup, program = experiment.setup, experiment.program
    shapes = program.check()
    acting = jax.eval_shape(setup.agent.acting, shapes.agent)
    normalize = parsed_recipe.normalize
    is_normalized = normalize.observation or normalize.reward
    acting_groups = _parameters_by_group(
        learned_in_policy(leaves_by_path(acting), is_normalized)
    )
    groups = _parameters_by_group(learned_leaves(leaves_by_path(shapes.agent)))
    iterations = train.steps // setup.steps_per_iteration
    return {
        "recipe": parsed_recipe.name,
        "iterations": iterations,
        "updates": setup.agent.count_updates(iterations),
        "parameters": {
            "training": _count(groups.values()),
            "acting": _count(acting_groups.values()),
        },
        "functions": {
            group: {
                "parameters": _count([leaves]),
                "acts": group in acting_groups,
                "inputs": _describe_inputs(setup.networks.get(group)),
            }
            for group, leaves in groups.items()
        },
        "memory": sum(
            tree_bytes(field) // (1 if axis is None else train.seeds)
            for field, axis in zip(shapes, AXES, strict=True)
        ),
        "peak_memory": {
            "total": out_of_memory.total(program.memory),
            **{
                item.name.replace(" ", "_"): item.size
                for item in program.memory
                if item.size
            },
        },
        "shapes": {
            f"{group}/{path}": describe_leaf(leaf, 1)
            for group, leaves in groups.items()
            for path, leaf in leaves.items()
        },
    }


def _parameters_by_group(learned: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The leaves of each group of parameters, by their paths below it."""
    groups: dict[str, dict[str, Any]] = {}
    for path, leaf in learned.items():
        kind, _, rest = path.partition("/")
        group, _, name = rest.partition("/")
        if kind == "params":
            groups.setdefault(group, {})[name] = leaf
    return groups


def _count(groups: Iterable[Mapping[str, Any]]) -> int:
    """The number of parameters of one seed."""
    leaves = (leaf for group in groups for leaf in group.values())
    return sum(math.prod(leaf.shape[1:]) for leaf in leaves)


def _describe_inputs(network: Network | None) -> dict[str, str] | None:
    """The inputs of a function, by name: dtype and shape of one observation's."""
    from rlcli import spaces
    from rlcli.networks.inputs import Pair
    from rlcli.xla.tree_paths import describe_leaf, leaves_by_path

    if network is None or network.space is None:
        return None
    space = network.space
    members = space.spaces if isinstance(space, Pair) else (space,)
    return {
        "/".join(filter(None, (name, path))): describe_leaf(leaf)
        for name, member in zip(("observation", "action"), members, strict=False)
        for path, leaf in leaves_by_path(spaces.zeros(member)).items()
    }
