"""Initial values: starts a run from what another has learned (`init` in a recipe).

Parameters are copied by the names of their groups, and with them the statistics of
normalized observations; the replay may begin with the steps of that of the source. What
does not fit is refused before the run is created: all of it, in one error.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt32

from rlcli.errors import RlcliError, quote, suggest
from rlcli.loop import make_loop
from rlcli.loop.progress import Setup
from rlcli.networks.freezing import TORSO, torso_paths
from rlcli.networks.functions import statistics_group
from rlcli.recipe import Recipe
from rlcli.recipe.grammar import Init
from rlcli.runs.initial_replay import fill_replays
from rlcli.runs.sources import Leaves, Source, learned_path, write_source
from rlcli.types import Array, ArrayTree, Transition
from rlcli.xla.tree_paths import describe_difference, leaves_by_path

_OBSERVATION, _RETURNS = "statistics/observation/", "statistics/returns/"


class InitialValues(NamedTuple):
    """What the seeds of a run start with."""

    source: Source
    paths: Sequence[str]  # of what the run takes from it, in the source

    def write(self, path: Path) -> None:
        """Writes the file from which the run could be started again."""
        write_source(path, self.source, self.paths)

    def record(self) -> dict[str, Any]:
        """The field `init` of `run.json`."""
        source = self.source
        fields = {"file": str(source.file), "sha256": source.sha256}
        return {**fields, "seeds": [*source.seeds], "steps": [*source.steps]}


class _Wanted(NamedTuple):
    """A leaf that the run takes, which has to be of the same kind in the source."""

    path: str  # in the run; "" if it has no such leaf
    source: str  # in the source
    remedy: str = ""  # the option with which the run does not take it, if there is one

    @property
    def group(self) -> str:
        """The group of parameters, `observation`, or `optimizer`."""
        kind, name, *_ = (self.path or self.source).split("/")
        return kind if kind == "optimizer" else name


class Initial(NamedTuple):
    """What `init` names, as it was read: once, before the agents are built."""

    source: Source
    steps: Transition | None  # with which replays begin, see `read_steps`


def start_from(
    initial: Initial, recipe: Recipe, setup: Setup
) -> tuple[Setup, InitialValues]:
    """The setup whose agents start with what the source of `init` has learned."""
    init, (source, steps) = recipe.init, initial
    assert init is not None  # what has an `Initial`
    shapes = make_loop(setup).shapes()
    torso = torso_paths(setup.networks.values())
    state = leaves_by_path(shapes.agent)
    names = {path: learned_path(path) for path in state}
    here = {names[path]: leaf for path, leaf in state.items()}
    if init.teacher:
        here = _select_teacher(init, here)
    wanted = [
        *_want_parameters(init, here, source.learned, torso),
        *_want_statistics(init, here, source.learned),
        *_want_optimizer(init, here, source.learned),
    ]
    _check_fit(source, here, wanted)
    rows = _source_rows(init, source, setup.seeds)
    paths = {leaf.path: leaf.source for leaf in wanted}
    given = {key: np.asarray(source.learned[paths[key]])[rows] for key in paths}
    _check_values(source, given)
    values: dict[str, np.ndarray] = {}
    for path, name in names.items():
        if init.teacher and name.startswith(("params/", "target/")):
            continue
        # These begin as copies of parameters, as at the start of any run.
        name = re.sub("^(target|initial)/", "params/", name)
        if name in given:
            values[path] = given[name]
    if steps is not None:
        values |= fill_replays(setup.agent, shapes, steps, rows)
    recorded = {} if steps is None else leaves_by_path(steps)
    taken = InitialValues(source._replace(recorded=recorded), [*paths.values()])
    seeds = np.array(setup.seeds, np.uint32)
    start = functools.partial(_replace_leaves, values, seeds)
    return setup._replace(start=start), taken


def _select_teacher(init: Init, here: Leaves) -> Leaves:
    """The leaves of a run that only takes a teacher, as if they were parameters."""
    if init.optimizer:
        message = "`init.optimizer` requires the parameters that `teacher` leaves out"
        raise RlcliError(message, "remove one of both")
    prefix = "initial/"
    if not any(path.startswith(prefix) for path in here):
        raise RlcliError(
            "`init.teacher`: nothing in this run compares the policy with another one",
            "add `{name: kl, to: initial, weight: 1.0}` to `updater.regularizers`, or "
            "use `updater: {name: behaviour_cloning, labels: teacher}`",
        )
    others = {path: leaf for path, leaf in here.items() if not _is_parameter(path)}
    return others | {
        f"params/{path.removeprefix(prefix)}": leaf
        for path, leaf in here.items()
        if path.startswith(prefix)
    }


def _is_parameter(path: str) -> bool:
    return path.startswith(("params/", "target/", "initial/", "optimizer/"))


def _replace_leaves(
    values: Leaves, seeds: np.ndarray, state: ArrayTree, seed: UInt32[Array, ""]
) -> ArrayTree:
    """The state of a seed's agent with the values `[S, ...]` of `seeds`, by path."""
    row = jnp.argmax(seeds == seed)
    leaves = [
        jnp.asarray(values[path])[row] if path in values else leaf
        for path, leaf in leaves_by_path(state).items()
    ]
    return jax.tree.unflatten(jax.tree.structure(state), leaves)


def _source_rows(init: Init, source: Source, seeds: Sequence[int]) -> list[int]:
    """The index in the source of the seed from which each seed starts."""
    wanted = [*seeds] if init.seed == "match" else [init.seed] * len(seeds)
    for seed in wanted:
        if seed not in source.seeds:
            has = ", ".join(map(str, source.seeds))
            raise RlcliError(
                f"`{source.file}` has no seed {seed}, only {has}",
                f"`init.seed={source.seeds[0]}` starts every seed from that one",
            )
    return [source.seeds.index(seed) for seed in wanted]


def _check_values(source: Source, given: Leaves) -> None:
    """Refuses to start from nothing, or from numbers that are not finite."""
    if not given:
        raise RlcliError(
            "`init` takes nothing: none of the groups has a torso of its own",
            "set `keep_head: true`, or name groups in `parts`",
        )
    for path, leaf in given.items():
        if np.issubdtype(leaf.dtype, np.floating) and not np.isfinite(leaf).all():
            raise RlcliError(
                f"`{source.file}` has numbers in `{path}` that are not finite",
                "start from an earlier checkpoint",
            )


def _want_parameters(
    init: Init, here: Leaves, there: Leaves, torso: set[str]
) -> Iterator[_Wanted]:
    """The parameters of the groups that `init` names."""
    for part, source_part in _requested_parts(init, here).items():
        (group, piece), (source_group, source_piece) = (
            _split_part(name) for name in (part, source_part)
        )
        own = _paths_of(group, here)
        is_torso = TORSO in (piece, source_piece)
        if is_torso or not init.keep_head:
            own = [
                path
                for path in own
                if path.partition("/")[2] in torso or _is_statistic(path)
            ]
        if is_torso and not own:
            message = f"`init.parts`: group {quote(group)} has no torso of its own"
            raise RlcliError(
                message, "where functions share one, its group is `shared`"
            )
        renamed = {
            path: path.replace(f"params/{group}", f"params/{source_group}", 1)
            for path in own
        }
        for path, source_path in renamed.items():
            is_in_torso = path.partition("/")[2] in torso
            remedy = "" if is_in_torso else "init.keep_head=false"
            yield _Wanted(path, source_path, remedy)
        if not is_torso and init.keep_head:
            surplus = {*_paths_of(source_group, there)} - {*renamed.values()}
            yield from (_Wanted("", path) for path in sorted(surplus))


def _requested_parts(init: Init, here: Leaves) -> dict[str, str]:
    """The groups, or torsos of groups, to take, with their names in the source."""
    names = {path.split("/")[1] for path in here if path.startswith("params/")}
    groups = sorted(name for name in names if not _is_statistic(f"params/{name}/"))
    if not groups:
        message = "`init` cannot start this updater: it has no groups of parameters"
        raise RlcliError(message, "remove `init`")
    if init.parts is None:
        return dict(zip(groups, groups, strict=True))
    parts = init.parts if isinstance(init.parts, dict) else {n: n for n in init.parts}
    for name in parts:
        if _split_part(name)[0] not in groups:
            message = f"`init.parts`: this run has no group {quote(name)}"
            raise RlcliError(message, suggest(name, groups))
    return parts


def _split_part(name: str) -> tuple[str, str]:
    """The group, and `torso` or "", of `GROUP/torso` or `GROUP`."""
    group, slash, piece = name.partition("/")
    if slash and piece != TORSO:
        message = f"`init.parts`: expected a group or its torso, got {quote(name)}"
        raise RlcliError(message, f"for example `{group}/{TORSO}`")
    return group, piece


def _paths_of(group: str, leaves: Leaves) -> list[str]:
    """The paths of a group's parameters, and of their running statistics."""
    prefixes = tuple(f"params/{name}/" for name in (group, statistics_group(group)))
    return [path for path in leaves if path.startswith(prefixes)]


def _is_statistic(path: str) -> bool:
    """Whether a path is that of the running statistics of a torso."""
    return path.split("/")[1].endswith(statistics_group(""))


def _want_statistics(init: Init, here: Leaves, there: Leaves) -> list[_Wanted]:
    """The statistics of normalization.

    Those of observations must be in both or in neither, because networks read what
    they normalize. Those of returns only scale rewards.
    """
    if not init.normalization:
        return []
    both = here.keys() | there.keys()
    paths = sorted(path for path in both if path.startswith(_OBSERVATION))
    paths += [path for path in here if path.startswith(_RETURNS) and path in there]
    return [_Wanted(path, path, "init.normalization=false") for path in paths]


def _want_optimizer(init: Init, here: Leaves, there: Leaves) -> list[_Wanted]:
    """The state of the optimizer, which has to be the same one, of all groups."""
    if not init.optimizer:
        return []
    if init.parts is not None or not init.keep_head:
        message = "`init.optimizer` requires the parameters of all groups"
        raise RlcliError(message, "remove `optimizer`, or `parts` and `keep_head`")
    both = here.keys() | there.keys()
    paths = sorted(path for path in both if path.startswith("optimizer/"))
    return [_Wanted(path, path, "init.optimizer=false") for path in paths]


def _check_fit(source: Source, here: Leaves, wanted: Sequence[_Wanted]) -> None:
    """Refuses leaves that differ; lists them, and the options that leave them out."""
    misfits: dict[_Wanted, str] = {}
    for leaf in wanted:
        own = here.get(leaf.path) if leaf.path else None
        if difference := describe_difference(own, source.learned.get(leaf.source)):
            name = (leaf.path or leaf.source).partition("/")[2]
            misfits[leaf] = f"{name}: {difference}"
    if not misfits:
        return
    remedies = [*dict.fromkeys(leaf.remedy for leaf in misfits)]
    wrong = {leaf.group for leaf in misfits}
    if "" in remedies:
        groups = {leaf.group for leaf in wanted if leaf.path.startswith("params/")}
        fitting = ", ".join(sorted(groups - wrong))
        remedies = [f"init.parts=[{fitting}]"] if fitting else []
    options = " and ".join(f"`{remedy}`" for remedy in remedies)
    hint = f"{options} would leave it out; " if options else ""
    raise RlcliError(
        f"`{source.file}` does not fit this run: {len(misfits)} arrays of "
        f"{', '.join(f'`{name}`' for name in sorted(wrong))} differ",
        f"{hint}all of it: {'; '.join(misfits.values())}",
    )
