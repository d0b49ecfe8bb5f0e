"""Snapshots: the content of checkpoint and policy files.

A checkpoint contains the whole state, for resume. A policy file contains only the part
of the state that acting needs. Both contain the resolved recipe, so that a single file
can be evaluated and rendered. They do not depend on clock, path or machine: equal
progress gives equal bytes.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.assembly import build, out_of_memory
from rlcli.errors import RlcliError
from rlcli.loop import Loop, make_loop
from rlcli.loop.progress import AXES, Progress, Setup
from rlcli.quoting import printable
from rlcli.recipe import Recipe, documents, load_recipe
from rlcli.runs import checkpoint, code, provenance
from rlcli.runs.frozen import FrozenSeeds, dump_frozen_seeds
from rlcli.runs.snapshot_content import (
    CHECKPOINT,
    FROZEN,
    HOOKS,
    LEARNED,
    NUMBERS,
    POLICY,
    read_content,
)
from rlcli.types import ArrayTree
from rlcli.xla import threads

# Tree path of the state of a host environment, whose shapes depend on its episodes.
_HOST_PREFIX = "environment"
_NO_SEED: FrozenSeeds = {}


class Snapshot(NamedTuple):
    """The policies of all seeds of a run, from a policy file or a checkpoint."""

    recipe: Recipe
    seeds: tuple[int, ...]
    steps: tuple[int, ...]  # of each seed when its policy was saved
    episodes: tuple[int, ...]
    returns: tuple[float, ...]  # of the best evaluations; () for the latest policies
    acting: Mapping[str, np.ndarray]  # by tree path, `[S, ...]`
    frozen: FrozenSeeds = _NO_SEED  # when the file was written
    learner: ArrayTree = ()  # of a checkpoint: the state of the updater, `[S, ...]`


class Policies(NamedTuple):
    """Policies in a run's memory; one entry for each seed."""

    returns: np.ndarray  # of evaluations, −inf before the first; empty without them
    steps: np.ndarray
    episodes: np.ndarray
    acting: dict[str, np.ndarray]  # by tree path


def save_progress(
    path: Path,
    recipe: Recipe,
    setup: Setup,
    progress: ArrayTree,
    metrics: Mapping[str, np.ndarray],
    frozen: FrozenSeeds = _NO_SEED,
    hooks: Mapping[str, np.ndarray] = {},
    numbers: Mapping[str, float] = {},
) -> None:
    """Writes a checkpoint, from which a run can resume without its other files.

    `progress` are arrays, as `Loop.save` returns them.
    """
    checkpoint.write(
        path,
        {
            "kind": CHECKPOINT,
            "recipe": recipe.resolved_text,
            "seeds": list(setup.seeds),
            "circumstances": {
                "layout": threads.layout(setup.all_devices)._asdict(),
                "versions": provenance.versions(),
            },
            "progress": checkpoint.flatten_tree(progress),
            "metrics": {name: np.asarray(metric) for name, metric in metrics.items()},
            **_frozen_record(frozen),
            **({HOOKS: dict(hooks)} if hooks else {}),
            **({NUMBERS: dict(numbers)} if numbers else {}),
        },
    )


class CheckpointContent(NamedTuple):
    """The content of a checkpoint, before anything is built from it."""

    path: Path
    recipe: str  # resolved, as YAML
    seeds: tuple[int, ...]
    circumstances: Mapping[str, Any]
    progress: Mapping[str, np.ndarray]  # by tree path
    metrics: Mapping[str, np.ndarray]  # of the last update
    frozen: FrozenSeeds
    hooks: Mapping[str, np.ndarray]  # their states, by tree path
    numbers: Mapping[str, float]  # that they have set, by their places


def read_checkpoint(path: Path) -> CheckpointContent:
    """Reads a checkpoint."""
    content = read_content(path, CHECKPOINT)
    return CheckpointContent(
        path=path,
        recipe=content["recipe"],
        seeds=tuple(content["seeds"]),
        circumstances=content["circumstances"],
        progress=content["progress"],
        metrics=content["metrics"],
        frozen=content[FROZEN],
        hooks=content.get(HOOKS, {}),
        numbers=content.get(NUMBERS, {}),
    )


def choose_seed(path: Path, seeds: Sequence[int], seed: int | None) -> int:
    """The seed, by default the first; refuses one that the file does not have."""
    if seed is None:
        return seeds[0]
    if seed not in seeds:
        numbers = ", ".join(f"`{number}`" for number in seeds)
        raise RlcliError(
            f"`{path}` has no policy of seed {seed}", f"choose the seed from {numbers}"
        )
    return seed


def stack_progress(trees: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The progress of runs that are trained together, in the order of their seeds."""
    return {
        path: leaf
        if getattr(AXES, path.split("/")[0]) is None
        else np.concatenate([tree[path] for tree in trees])
        for path, leaf in trees[0].items()
    }


def restore_progress(
    tree: CheckpointContent, recipe: Recipe, setup: Setup, loop: Loop
) -> tuple[Progress, str]:
    """Restores the progress of a run; also returns a message, "" if it is exact."""
    data = documents.load_document(tree.recipe, source=str(tree.path)).data
    before = data["train"]["data_parallel"]  # devices that shared an agent
    if before != setup.data_parallel:
        return _redivide(tree, recipe, setup, loop, before)
    shapes = loop.shapes()
    leaves = dict(tree.progress)
    # The shapes of a host environment's state depend on its episodes; it checks them.
    host = {}
    if not jax.tree.leaves(shapes.environment):
        prefix = f"{_HOST_PREFIX}/"
        for name in [name for name in leaves if name.startswith(prefix)]:
            host[name.removeprefix(prefix)] = leaves.pop(name)
    result = checkpoint.restore_tree(shapes, leaves, source=tree.path)
    return loop.restore(result._replace(environment=host) if host else result)


def _redivide(
    saved: CheckpointContent, recipe: Recipe, setup: Setup, loop: Loop, before: int
) -> tuple[Progress, str]:
    """Restores the progress of an agent that `before` other devices have shared."""
    after = setup.data_parallel
    if setup.agent.redivide is None:
        assert recipe.replay is not None  # only replays cannot be divided anew
        raise RlcliError(
            f"`{saved.path}` holds the replay `{recipe.replay.name}` of {before} "
            f"devices, which cannot be divided among {after}",
            f"resume with `--set train.data_parallel={before}`",
        )
    train = dataclasses.replace(recipe.train, devices="auto", data_parallel=before)
    recipe_before = dataclasses.replace(recipe, train=train)
    shapes = make_loop(build(recipe_before, saved.seeds)).shapes()
    progress = checkpoint.restore_tree(shapes, saved.progress, source=saved.path)
    agent = setup.agent.redivide(progress.agent, int(progress.iteration), before, after)
    progress, message = loop.restore(progress._replace(agent=agent))
    changed = f"the agent was divided among {before} devices, and now among {after}"
    return progress, message or f"not exactly the same run: {changed}"


def save_policy(path: Path, snapshot: Snapshot) -> None:
    """Writes a policy file, which contains the part of the state that acting needs."""
    checkpoint.write(
        path,
        {
            "kind": POLICY,
            "recipe": snapshot.recipe.resolved_text,
            "seeds": list(snapshot.seeds),
            "steps": list(snapshot.steps),
            "episodes": list(snapshot.episodes),
            "returns": list(snapshot.returns),
            "acting": dict(snapshot.acting),
            **_frozen_record(snapshot.frozen),
        },
    )


def load_snapshot(path: Path, *, trust: bool | None = None) -> Snapshot:
    """Reads the policy of a policy file or a checkpoint."""
    content = read_content(path, POLICY, CHECKPOINT)
    recipe = snapshot_recipe(path, content, trust=trust)
    seeds = tuple(content["seeds"])
    if content["kind"] == POLICY:
        return Snapshot(
            recipe=recipe,
            seeds=seeds,
            steps=tuple(content["steps"]),
            episodes=tuple(content["episodes"]),
            returns=tuple(content["returns"]),
            acting={name: as_float32(leaf) for name, leaf in content["acting"].items()},
            frozen=content[FROZEN],
        )
    setup = build(recipe, seeds)
    loop = make_loop(setup)
    shapes = loop.shapes()._replace(environment=())
    leaves = {
        name: leaf
        for name, leaf in content["progress"].items()
        if not name.startswith(f"{_HOST_PREFIX}/")
    }
    progress = checkpoint.restore_tree(shapes, leaves, source=path)
    steps = int(progress.iteration) * setup.steps_per_iteration
    inside = setup.agent.inside
    assert inside is not None  # as in every agent that `loop.agents` makes
    return Snapshot(
        recipe=recipe,
        seeds=seeds,
        steps=(steps,) * len(seeds),
        episodes=tuple(progress.statistics.episodes.tolist()),
        returns=(),
        acting=checkpoint.flatten_tree(setup.agent.acting(progress.agent)),
        frozen=content[FROZEN],
        learner=inside.learner(progress.agent),
    )


def write_learned(
    path: Path,
    recipe: str,
    seeds: Sequence[int],
    steps: Sequence[int],
    learned: Mapping[str, np.ndarray],
) -> None:
    """Writes what a run has started from, by tree path, `[S, ...]`."""
    content = {"kind": LEARNED, "recipe": recipe, "seeds": [*seeds]}
    checkpoint.write(path, {**content, "steps": [*steps], "learned": dict(learned)})


def as_float32(leaf: np.ndarray) -> np.ndarray:
    """The leaf, in float32 if it is stored in half precision, as in large policies."""
    return leaf.astype(np.float32) if leaf.dtype == np.float16 else leaf


def load_best(path: Path, shapes: ArrayTree, seeds: Sequence[int]) -> Policies:
    """Reads the best policies of a run that is resumed.

    Ignores the recipe in the file. `shapes` are those of the acting state, `[S, ...]`.
    """
    content = read_content(path, POLICY)
    hint = "remove the file: the next evaluation recreates it"
    if content["seeds"] != list(seeds) or not content["returns"]:
        raise RlcliError(f"`{path}` is not the best policy of this run", hint)
    try:
        checkpoint.restore_tree(shapes, content["acting"], source=path)
    except RlcliError as error:
        raise RlcliError(error.message, hint) from error
    return Policies(
        returns=np.array(content["returns"], np.float64),
        steps=np.array(content["steps"]),
        episodes=np.array(content["episodes"]),
        acting=dict(content["acting"]),
    )


def snapshot_recipe(
    path: Path, content: Mapping[str, Any] | None = None, *, trust: bool | None = None
) -> Recipe:
    """The resolved recipe in a file; `trust` as in `code.admit_code`.

    Prints a warning if the code that it imports has changed since training.
    """
    content = content or read_content(path, POLICY, CHECKPOINT)
    data = documents.load_document(content["recipe"], source=str(path)).data
    admission = code.admit_code(path, [data], trust)
    if admission.warning:
        print(f"warning: {printable(admission.warning)}", file=sys.stderr)
    try:
        recipe = load_recipe(data, trusted=admission.code, is_stored=True)
    except RlcliError as error:
        message = f"`{path}`: in its recipe, {error.message}"
        raise RlcliError(message, error.hint) from error
    return dataclasses.replace(recipe, name=path.stem)


def restore_acting(snapshot: Snapshot, policy_of: Setup, source: Path) -> ArrayTree:
    """Restores the acting state of a setup's policy, `[S, ...]`, from a snapshot."""
    with out_of_memory.limit_building(snapshot.recipe):
        shapes = jax.eval_shape(lambda: _acting_state(policy_of))
    seeds = len(snapshot.seeds)
    batched = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype), shapes
    )
    return checkpoint.restore_tree(batched, snapshot.acting, source=source)


def _acting_state(setup: Setup) -> ArrayTree:
    progress = make_loop(setup).shapes()
    state = jax.tree.map(lambda s: jnp.zeros(s.shape[1:], s.dtype), progress.agent)
    return setup.agent.acting(state)


def _frozen_record(frozen: FrozenSeeds) -> dict[str, Any]:
    return {FROZEN: dump_frozen_seeds(frozen)} if frozen else {}
