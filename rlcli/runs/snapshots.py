"""Snapshots: what checkpoint and policy files hold, and how a run comes back from them.

A checkpoint holds everything, for resume; a policy file only what acting needs. Either
carries its resolved recipe, so a copy of the file alone can be evaluated and rendered.
Nothing in them depends on clock, path or machine: equal progress, equal bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.assembly import build, out_of_memory
from rlcli.errors import RlcliError
from rlcli.loop import Loop, make
from rlcli.loop.faults import NONE
from rlcli.loop.progress import Progress, Setup, midnight
from rlcli.recipe import Recipe, documents, dump, load, resolved
from rlcli.runs import checkpoint, provenance
from rlcli.runs.frozen import FrozenSeeds, dump_frozen, load_frozen
from rlcli.types import ArrayTree
from rlcli.xla import threads, tree_paths

_CHECKPOINT, _POLICY = "checkpoint", "policy"
_MOST, _SEEDS = 2**53, 2**32  # steps that a float counts exactly; seeds there are
_CIRCUMSTANCES = "circumstances"  # which early files do not have
_HOST = "environment"  # of a host environment's progress: its own shapes, not code's
_FROZEN = (
    "frozen"  # only in files of runs with frozen seeds, as `_FAULTS` in newer ones
)
_FAULTS = "faults/"
_NO_SEED: FrozenSeeds = MappingProxyType({})


class Snapshot(NamedTuple):
    """A policy as it comes out of a file, for all seeds of its run."""

    recipe: Recipe
    seeds: tuple[int, ...]
    steps: tuple[int, ...]  # at which each seed's was taken
    episodes: tuple[int, ...]
    returns: tuple[float, ...]  # of the evaluation that chose each; () if none did
    acting: Mapping[str, np.ndarray]  # by tree path, `[S, ...]`
    frozen: FrozenSeeds = _NO_SEED  # of its run, by the time the file was written


class Best(NamedTuple):
    """The best policies so far, by evaluation; one entry for each seed."""

    returns: np.ndarray  # −inf before the first
    steps: np.ndarray
    episodes: np.ndarray
    acting: dict[str, np.ndarray]  # by tree path


def save_progress(
    path: Path,
    recipe: Recipe,
    setup: Setup,
    loop: Loop,
    progress: Progress,
    metrics: Mapping[str, np.ndarray],
    frozen: FrozenSeeds = _NO_SEED,
) -> None:
    """Writes all that a run needs to continue, even if its other files are lost."""
    checkpoint.write(
        path,
        {
            "kind": _CHECKPOINT,
            "recipe": dump(resolved(recipe)),
            "seeds": list(setup.seeds),
            "circumstances": {
                "layout": threads.layout(setup.devices)._asdict(),
                "versions": provenance.versions(),
            },
            "progress": checkpoint.leaves(loop.save(progress)),
            "metrics": {name: np.asarray(each) for name, each in metrics.items()},
            **_dump_frozen(frozen),
        },
    )


class Saved(NamedTuple):
    """A checkpoint as it was read; nothing of it has been built yet."""

    path: Path
    recipe: str  # resolved, as YAML
    seeds: tuple[int, ...]
    circumstances: Mapping[str, Any]  # {} in early files
    progress: Mapping[str, np.ndarray]  # by tree path
    metrics: Mapping[str, np.ndarray]  # of the last update
    frozen: FrozenSeeds


def read_checkpoint(path: Path) -> Saved:
    """The content of a checkpoint."""
    content = _content(path, _CHECKPOINT)
    return Saved(
        path=path,
        recipe=content["recipe"],
        seeds=tuple(content["seeds"]),
        circumstances=content.get("circumstances", {}),
        progress=content["progress"],
        metrics=content["metrics"],
        frozen=load_frozen(content.get(_FROZEN, {}), content["seeds"]),
    )


def restore_progress(saved: Saved, loop: Loop) -> tuple[Progress, str]:
    """A run's progress, and a sentence about what could not be restored."""
    shapes = loop.shapes()
    leaves = _with_faults(saved.progress, shapes)
    # A host environment's part has the shape that its episodes have; it checks it.
    host = {}
    if not jax.tree.leaves(shapes.environment):
        prefix = f"{_HOST}/"
        for name in [name for name in leaves if name.startswith(prefix)]:
            host[name.removeprefix(prefix)] = leaves.pop(name)
    restored = checkpoint.restored(shapes, leaves, source=saved.path)
    return loop.restore(restored._replace(environment=host) if host else restored)


def save_policy(path: Path, snapshot: Snapshot) -> None:
    """Writes what acting needs."""
    checkpoint.write(
        path,
        {
            "kind": _POLICY,
            "recipe": dump(resolved(snapshot.recipe)),
            "seeds": list(snapshot.seeds),
            "steps": list(snapshot.steps),
            "episodes": list(snapshot.episodes),
            "returns": list(snapshot.returns),
            "acting": dict(snapshot.acting),
            **_dump_frozen(snapshot.frozen),
        },
    )


def load_snapshot(path: Path, *, trust: bool = False) -> Snapshot:
    """The policy in a policy file or a checkpoint."""
    content = _content(path, _POLICY, _CHECKPOINT)
    recipe = recipe_of(path, content, trust=trust)
    seeds = tuple(content["seeds"])
    frozen = load_frozen(content.get(_FROZEN, {}), seeds)
    if content["kind"] == _POLICY:
        return Snapshot(
            recipe=recipe,
            seeds=seeds,
            steps=tuple(content["steps"]),
            episodes=tuple(content["episodes"]),
            returns=tuple(content["returns"]),
            acting=content["acting"],
            frozen=frozen,
        )
    setup = build(recipe, seeds)
    loop = make(setup)
    shapes = loop.shapes()._replace(environment=())
    leaves = {
        name: leaf
        for name, leaf in _with_faults(content["progress"], shapes).items()
        if not name.startswith(f"{_HOST}/")
    }
    progress = checkpoint.restored(shapes, leaves, source=path)
    _, agent = setup.parts(midnight())
    steps = int(progress.iteration) * setup.steps
    return Snapshot(
        recipe=recipe,
        seeds=seeds,
        steps=(steps,) * len(seeds),
        episodes=tuple(progress.statistics.episodes.tolist()),
        returns=(),
        acting=checkpoint.leaves(agent.acting(progress.agent)),
        frozen=frozen,
    )


def load_best(path: Path, shapes: ArrayTree, seeds: Sequence[int]) -> Best:
    """The best policies of the run that is being resumed.

    The recipe in the file is not read: the run has one. `shapes` is what the run's
    policies take, `[S, ...]`.
    """
    content = _content(path, _POLICY)
    hint = "remove the file: the next evaluation writes it again"
    if content["seeds"] != list(seeds) or not content["returns"]:
        raise RlcliError(f"`{path}` is not the best policy of this run", hint)
    try:
        checkpoint.restored(shapes, content["acting"], source=path)
    except RlcliError as error:
        raise RlcliError(error.message, hint) from error
    return Best(
        returns=np.array(content["returns"], np.float64),
        steps=np.array(content["steps"]),
        episodes=np.array(content["episodes"]),
        acting=dict(content["acting"]),
    )


def recipe_of(
    path: Path, content: Mapping[str, Any] | None = None, *, trust: bool = False
) -> Recipe:
    """The resolved recipe that a file carries; imports nothing unless trusted."""
    content = content or _content(path, _POLICY, _CHECKPOINT)
    data = documents.load(content["recipe"], source=str(path)).data
    try:
        recipe = load(data, trusted=trust)
    except RlcliError as error:
        message = f"`{path}`: in its recipe, {error.message}"
        raise RlcliError(message, error.hint) from error
    return dataclasses.replace(recipe, name=path.stem)


def acting_of(snapshot: Snapshot, policy_of: Setup, source: Path) -> ArrayTree:
    """The tree that the policy of a setup takes, `[S, ...]`, from a snapshot."""
    with out_of_memory.limit_building(snapshot.recipe):
        shapes = jax.eval_shape(lambda: _acting(policy_of))
    seeds = len(snapshot.seeds)
    batched = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype), shapes
    )
    return checkpoint.restored(batched, snapshot.acting, source=source)


def _acting(setup: Setup) -> ArrayTree:
    progress = make(setup).shapes()
    _, agent = setup.parts(midnight())
    state = jax.tree.map(lambda s: jnp.zeros(s.shape[1:], s.dtype), progress.agent)
    return agent.acting(state)


def _content(path: Path, *kinds: str) -> dict[str, Any]:
    """The outer dict of a file, of one of these kinds, with all that it has to hold."""
    keys = {
        _CHECKPOINT: {"kind", "recipe", "seeds", "progress", "metrics"},
        _POLICY: {
            *("kind", "recipe", "seeds", "steps", "episodes", "returns", "acting")
        },
    }
    data = checkpoint.read(path)
    kind = data.get("kind") if isinstance(data, dict) else None
    if (
        not isinstance(kind, str)
        or kind not in keys
        or set(data) - {_FROZEN, _CIRCUMSTANCES} != keys[kind]
        or not _well_formed(data)
    ):
        raise RlcliError(f"`{path}` holds no checkpoint and no policy of rlcli")
    if kind not in kinds:
        raise RlcliError(f"`{path}` is a {kind} file, where a {kinds[0]} is needed")
    return data


def _with_faults(leaves: Mapping[str, Any], shapes: Progress) -> dict[str, Any]:
    """The leaves of a progress; a file from before faults were recorded has none."""
    if any(name.startswith(_FAULTS) for name in leaves):
        return dict(leaves)
    blank = {
        f"{_FAULTS}{name}": np.full(each.shape, NONE, each.dtype)
        for name, each in tree_paths.paths(shapes.faults).items()
    }
    return {**leaves, **blank}


def _dump_frozen(frozen: FrozenSeeds) -> dict[str, Any]:
    return {_FROZEN: dump_frozen(frozen)} if frozen else {}


def _well_formed(data: Mapping[str, Any]) -> bool:
    """Whether the parts are of the types that are relied upon."""
    lists = [data[key] for key in ("seeds", "steps", "episodes") if key in data]
    trees = [data[key] for key in ("progress", "metrics", "acting") if key in data]
    returns = data.get("returns", [])
    return (
        isinstance(data["recipe"], str)
        and isinstance(data.get("circumstances", {}), dict)
        and all(isinstance(tree, dict) for tree in trees)
        and all(isinstance(x, np.ndarray) for tree in trees for x in tree.values())
        and all(isinstance(each, list) for each in (*lists, returns))
        and all(len(each) == len(data["seeds"]) > 0 for each in lists)
        and all(type(n) is int and 0 <= n <= _MOST for each in lists for n in each)
        and max(data["seeds"]) < _SEEDS
        and len(returns) in (0, len(data["seeds"]))
        and all(type(number) is float for number in returns)
        and _has_frozen(data)
    )


def _has_frozen(data: Mapping[str, Any]) -> bool:
    """Whether the record of frozen seeds is well formed, where there is one."""
    try:
        load_frozen(data.get(_FROZEN, {}), data["seeds"])
    except ValueError:
        return False
    return True
