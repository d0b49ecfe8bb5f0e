"""Initial replay: the steps of another run with which a replay begins (`init.replay`).

The replay of a source is read by its own part, which is one of rlcli's, with the spaces
and the extras of the new run. So its arrays have to be those that such a replay stores,
and nothing of the source runs.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from rlcli import registry
from rlcli.assembly import build
from rlcli.errors import RlcliError, quote
from rlcli.loop import make_loop
from rlcli.loop.agents import ReplayAgentState
from rlcli.loop.progress import Progress
from rlcli.recipe import Part, Recipe
from rlcli.recipe.grammar import Init, Reader
from rlcli.runs.files import DAMAGES
from rlcli.runs.sources import Leaves, Source, check_seeds
from rlcli.types import Agent, Transition
from rlcli.xla.numeric_limits import INT32_MAX
from rlcli.xla.tree_paths import describe_difference, leaves_by_path

_READ = 10**6  # iterations of the run that reads a replay: more than any window
_REPLAY = "agent/replay/"  # the replay of a checkpoint
_REMEDY = "`init.replay=false` starts with an empty replay"


class _Origin(NamedTuple):
    """How a source has stored its steps, from its recipe."""

    replay: Mapping[str, Any]
    unroll: int
    num_envs: int
    filled: int  # steps with which its own replay began


def read_steps(recipe: Recipe, source: Source) -> Transition:
    """The newest steps in the replay of a source, `[S, N, ...]`, in NumPy arrays.

    The steps of one environment after another, each a stream in which an episode begins
    with the first step and is cut after the last one. All environments have equally
    many, so that the sum is at most `init.replay` and the capacity of the new replay.
    """
    assert recipe.init is not None  # the caller has asked for its steps
    most = _check_replay(recipe)
    if not isinstance(recipe.init.replay, bool):
        most = min(most, recipe.init.replay)
    streams = _read_recorded(recipe, source) or _read_streams(recipe, source)
    _, num_envs, length = streams.reward.shape
    kept = min(length, most // num_envs)
    steps = jax.tree.map(lambda leaf: leaf[:, :, length - kept :], streams)
    size = recipe.train.unroll * recipe.num_envs
    if kept * num_envs < size:
        raise RlcliError(
            f"`{source.file}` gives {kept * num_envs:,} steps to the replay, fewer "
            f"than one unroll of {size:,}",
            f"{_REMEDY}; or lower `train.unroll` or `environment.num_envs`",
        )
    steps.first[:, :, 0], steps.last[:, :, -1] = True, True
    shape = len(source.seeds), -1
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[3:]), steps)


def fill_replays(
    agent: Agent, shapes: Progress, steps: Transition, rows: Sequence[int]
) -> dict[str, np.ndarray]:
    """The states of the replays of all seeds, by their paths in the agent's state.

    Seed i begins with the steps of row `rows[i]`. `shapes` are those of the progress.
    """
    inside, unroll = agent.inside, _empty_unroll(shapes)
    assert inside is not None and inside.fill is not None  # see `_check_replay`
    fill = jax.jit(inside.fill)
    by_row = {
        row: jax.device_get(fill(unroll, _take_seed(steps, row))) for row in {*rows}
    }
    states = jax.tree.map(lambda *leaves: np.stack(leaves), *(by_row[r] for r in rows))
    return {f"replay/{path}": leaf for path, leaf in leaves_by_path(states).items()}


def _check_replay(recipe: Recipe) -> int:
    """The capacity of a run's replay; refuses one that cannot begin with steps."""

    def refuse(problem: str, hint: str = _REMEDY) -> NoReturn:
        raise RlcliError(f"`init.replay`: {problem}", hint)

    part = recipe.replay
    if part is None:
        refuse("this run has no replay")
    facts = part.registered.facts
    if facts.get("offline"):
        refuse(f"replay `{part.name}` stores no steps")
    if reason := facts.get("starts_empty"):
        refuse(f"replay `{part.name}` {reason}")
    if part.options.get("frames"):
        refuse(
            f"replay `{part.name}` with `frames` cannot begin within an episode, "
            "without those before",
            "remove `frames`",
        )
    if part.options.get("prefill"):
        refuse("the replay begins with the data set `prefill`", "choose one of both")
    if recipe.train.data_parallel > 1:
        refuse("a replay cannot be divided among devices", "remove `data_parallel`")
    return recipe.replay_capacity


def _read_recorded(recipe: Recipe, source: Source) -> Transition | None:
    """The steps in a file that another run has started from, as streams."""
    recorded = source.recorded.items()
    leaves = {path: np.array(leaf)[:, None] for path, leaf in recorded}
    if not leaves:
        return None
    if len({leaf.shape[:3] if leaf.ndim > 2 else () for leaf in leaves.values()}) > 1:
        message = f"`{source.file}` is damaged: its steps are not equally many"
        raise RlcliError(message, f"copy the file again; {_REMEDY}")
    unroll = make_loop(build(recipe, source.seeds)).shapes().unroll

    def single(leaf: Any) -> jax.ShapeDtypeStruct:  # a step, from `[S, T, B, ...]`
        return jax.ShapeDtypeStruct((leaf.shape[0], *leaf.shape[3:]), leaf.dtype)

    steps = {path: single(leaf) for path, leaf in leaves.items()}
    paths = _matching_paths(source, jax.tree.map(single, unroll), steps)
    structure = jax.tree.structure(unroll)
    return jax.tree.unflatten(structure, [leaves[path] for path in paths])


def _read_streams(recipe: Recipe, source: Source) -> Transition:
    """The steps in the replay of a checkpoint, `[S, B, T, ...]`."""
    origin = _read_origin(source)
    recipe = _with_replay(recipe, origin, source.file)
    try:
        setup = build(recipe, source.seeds)
    except RlcliError as error:
        message = f"the replay of `{source.file}` does not fit this run"
        raise RlcliError(f"{message}: {error.message}", _REMEDY) from error
    shapes = make_loop(setup).shapes()
    # The step that a checkpoint has not completed tells the spaces.
    fields = Progress._make([()] * len(Progress._fields))
    agent = ReplayAgentState((), shapes.agent.replay)
    wanted = fields._replace(pending=shapes.pending, agent=agent)
    leaves = source.progress.items()
    stored = {p: leaf for p, leaf in leaves if p.startswith(("pending/", _REPLAY))}
    arrays = [stored[path] for path in _matching_paths(source, wanted, stored)]
    check_seeds(source.file, stored, len(source.seeds))
    states = jax.tree.unflatten(jax.tree.structure(wanted), arrays).agent.replay
    inside, unroll = setup.agent.inside, _empty_unroll(shapes)
    assert inside is not None and inside.contents is not None  # all of rlcli's have it
    iteration, seeds = int(source.progress["iteration"]), []
    for index in range(len(source.seeds)):
        state = ReplayAgentState((), _take_seed(states, index))
        _, steps = inside.contents(state, iteration, unroll, setup.data(), INT32_MAX)
        seeds.append(jax.device_get(steps))
    shape = -1, origin.num_envs
    return jax.tree.map(
        lambda *leaves: np.stack(
            [leaf.reshape(*shape, *leaf.shape[1:]).swapaxes(0, 1) for leaf in leaves]
        ),
        *seeds,
    )


def _read_origin(source: Source) -> _Origin:
    """Reads from a source's recipe how it has stored steps; refuses what has none."""
    if not source.progress:
        raise RlcliError(
            f"`{source.file}` has no replay: it is not a checkpoint",
            f"start from a run, or from a checkpoint of it; {_REMEDY}",
        )
    replay, (unroll, num_envs, devices) = source.data.get("replay"), source.sizes
    if not isinstance(replay, Mapping) or not any(
        path.startswith(_REPLAY) for path in source.progress
    ):
        raise RlcliError(
            f"`{source.file}` has no replay: it learned without, or from a data set",
            f"`replay.prefill` begins with a data set; {_REMEDY}",
        )
    init = source.data.get("init")
    try:
        filled = int(init.get("replay") or 0) if isinstance(init, Mapping) else 0
        steps = int(source.progress["iteration"]) * unroll + filled
        if min(*source.sizes, filled + 1) < 1 or steps > INT32_MAX:
            raise ValueError
    except DAMAGES as error:
        message = f"`{source.file}` is damaged: it does not say how it stored steps"
        raise RlcliError(message, "start from another checkpoint") from error
    if devices > 1:
        raise RlcliError(
            f"`{source.file}` holds the replays of {devices} devices", _REMEDY
        )
    return _Origin(replay, unroll, num_envs, filled)


def _with_replay(recipe: Recipe, origin: _Origin, file: Path) -> Recipe:
    """The recipe with the replay of a source, and its sizes."""
    name, label = str(origin.replay.get("name")), f"the replay of `{file}`"
    if name not in registry.names("replay") or registry.is_plug_in("replay", name):
        message = f"{label} is {quote(name)}, which is not part of rlcli"
        raise RlcliError(message, _REMEDY)

    def fail(place: Any, message: str, hint: str = "") -> NoReturn:
        raise RlcliError(message, hint)

    written = {key: value for key, value in origin.replay.items() if key != "name"}
    if written.get("prefill_fraction"):  # the data are not among the stored steps
        written |= {"prefill": None, "prefill_fraction": None}
    parameters = registry.options(registry.find("replay", name).factory)
    options = Reader(label, (), fail).options(parameters, written)
    init = Init(from_="", replay=origin.filled) if origin.filled else None
    return dataclasses.replace(
        recipe,
        replay=Part("replay", name, options),
        num_envs=origin.num_envs,
        init=init,
        # Nothing is learned from it, so it need not be that of a run that learns.
        train=dataclasses.replace(
            recipe.train,
            unroll=origin.unroll,
            start=0,
            updates=Fraction(1),
            steps=_READ * origin.unroll * origin.num_envs,
        ),
    )


def _matching_paths(source: Source, shapes: Any, there: Leaves) -> list[str]:
    """The paths of a tree of shapes, in its order, which the source has as well.

    Refuses steps of other spaces, or with other extras, than those of this run.
    """
    here = leaves_by_path(shapes)
    differing = [
        f"{path}: {difference}"
        for path in [*here, *(path for path in there if path not in here)]
        if (difference := describe_difference(here.get(path), there.get(path)))
    ]
    if differing:
        raise RlcliError(
            f"the steps in the replay of `{source.file}` do not fit this run: "
            f"{len(differing)} arrays differ",
            f"{_REMEDY}; all of it: {'; '.join(differing)}",
        )
    return [*here]


def _take_seed(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _empty_unroll(shapes: Progress) -> Transition:
    """An unroll of one seed, of zeros, from the shapes of the progress."""
    return jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), shapes.unroll
    )
