"""Collect: writes the steps of a trained policy as a data set."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rlcli import spaces
from rlcli.assembly import build, out_of_memory
from rlcli.assembly.memory_usage import Item
from rlcli.evaluation.evaluate import snapshot_inputs
from rlcli.evaluation.make_evaluator import make_evaluator, without_grid
from rlcli.evaluation.targets import check_collection
from rlcli.loop.evaluator import Evaluator
from rlcli.policies.sampled import random as random_policy
from rlcli.recipe import Recipe, resolve
from rlcli.registry.paths import resolves
from rlcli.replays.datasets.dataset_arrays import DatasetArrays
from rlcli.replays.datasets.dataset_files import dump_dataset
from rlcli.runs import provenance, snapshots
from rlcli.runs.files import write_output
from rlcli.runs.statistics import episode_summary
from rlcli.spaces.canonical import Canonical, canonical_spaces
from rlcli.types import ArrayTree, Environment, External, Transition
from rlcli.xla.temporaries import tree_bytes
from rlcli.xla.tree_paths import leaves_by_path

_STREAM_STEPS = 2_000  # steps of an environment, at least, if `steps` are collected …
_EPISODES = 100  # by default
_SCALARS = 10  # bytes of reward, discount and two flags
_MAX_STREAMS = 10  # … by at most this many environments


@resolves("run", new=("output",))
def collect(
    run: str | Path,
    *,
    output: str | Path | None = None,
    episodes: int | None = None,
    steps: int | None = None,
    best: bool = False,
    explore: bool = False,
    random: bool = False,
    seed: int = 0,
    trust: bool | None = None,
) -> dict[str, Any]:
    """Writes episodes of a trained policy as a data set, for replay `dataset`.

    The policies of all seeds of a run contribute equally.

    Args:
        run: what `rlcli.eval` takes, such as `zoo/dqn_cartpole`.
        output: the file, `.npz`; by default `dataset.npz` in the run's folder, or in
            the current one for a policy of the zoo.
        episodes: the number of whole episodes; by default 100.
        steps: the number of steps instead; the last episode is truncated.
        best: uses the policy of each seed's best evaluation instead of the latest.
        explore: explores as in training instead of acting greedily.
        random: acts at random instead, uniformly over the legal actions.
        seed: random seed of the episodes.
        trust: whether the file's recipe may import code from outside rlcli and
            plug-ins. By default that of your own runs may, see `rlcli.trust`.

    Returns:
        `{"file", "bytes", "sha256", "environment", "episodes", "steps", "policy",
        "return": {"mean", "std", "min", "max"}, "length"}`.
    """
    policy, file = check_collection(
        run,
        output=output,
        best=best,
        episodes=episodes,
        steps=steps,
        explore=explore,
        random=random,
    )
    if steps is None and episodes is None:
        episodes = _EPISODES
    snapshot = snapshots.load_snapshot(policy, trust=trust)
    recipe = without_grid(snapshot.recipe)  # the environment of the training
    setup = build(recipe, snapshot.seeds)
    acting = snapshots.restore_acting(snapshot, setup, policy)
    environment = setup.environment
    evaluator = make_evaluator(
        recipe,
        setup,
        -(-(episodes or 1) // len(snapshot.seeds)),
        explore=explore,
        # Each makes many steps, so that the first ones of episodes are not too many.
        num_envs=steps and max(1, min(_MAX_STREAMS, steps // _STREAM_STEPS)),
        policy=random_policy(environment.action, environment.observation)
        if random
        else None,
    )
    records = [_records_memory(environment, episodes, steps)]
    with out_of_memory.limit_evaluation_memory(recipe, evaluator, acting, records):
        rows = evaluator.transitions(acting, seed, snapshot_inputs(snapshot))
        data = _record(evaluator, rows, episodes, steps)
    mode = "random" if random else "explore" if explore else "greedy"
    data = data._replace(metadata=_metadata(recipe, environment, mode))
    content = dump_dataset(data)
    write_output(file, content)
    lengths = np.diff(np.flatnonzero(data.ends), prepend=-1)
    summary = episode_summary(data.returns, lengths)
    return {
        "file": str(file),
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "environment": recipe.environment.name,
        "policy": mode,
        "episodes": len(lengths),
        "steps": len(data.rewards),
        "return": {key: summary[key] for key in ("mean", "std", "min", "max")},
        "length": summary["length"],
    }


def _records_memory(
    environment: Environment, episodes: int | None, steps: int | None
) -> Item:
    """The memory of the steps; of whole episodes a lower bound, one step each."""
    key, count = ("episodes", episodes or 0) if steps is None else ("steps", steps)
    arrays = [spaces.zeros(environment.observation)] * 2
    arrays += [spaces.zeros(environment.action)]
    # Rows are recorded, and then stacked.
    size = 2 * count * (_SCALARS + sum(map(tree_bytes, arrays)))
    return Item("recorded steps", size, f"{count:,} {key}", {f"--{key}": None}, True)


class _Episode(NamedTuple):
    """A stretch of steps of one environment; the order is that in the data set."""

    number: int  # among those of its environment
    seed: int
    environment: int
    start: int
    stop: int


def _record(
    evaluator: Evaluator,
    transitions: Iterator[Transition],
    episodes: int | None,
    steps: int | None,
) -> DatasetArrays:
    """Runs the policy until there are enough episodes or steps."""
    num_envs = evaluator.environment.num_envs
    if steps is not None:
        length = -(-steps // (num_envs * evaluator.seeds))
        rows = list(itertools.islice(transitions, length))
    else:
        rows = list(_whole_episodes(evaluator, transitions))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
    found = sorted(_find_episodes(stacked, includes_partial=steps is not None))
    return _to_arrays(stacked, found[:episodes], steps, evaluator.environment.own)


def _whole_episodes(
    evaluator: Evaluator, transitions: Iterator[Transition]
) -> Iterator[Transition]:
    """The steps until each environment has finished its share of the episodes."""
    finished = np.zeros((evaluator.seeds, evaluator.environment.num_envs), int)
    for row in transitions:
        yield row
        finished += row.last
        if np.all(finished >= evaluator.episodes_per_env):
            return


def _find_episodes(rows: Transition, *, includes_partial: bool) -> Iterator[_Episode]:
    """The episodes in steps `[T, S, B]`, each with its bounds.

    The episode of an agent that ends before the others of its game stops there.
    """
    last, is_terminal = rows.last, rows.discount == 0
    length, seeds, num_envs = last.shape
    for seed, environment in itertools.product(range(seeds), range(num_envs)):
        stops = (np.flatnonzero(last[:, seed, environment]) + 1).tolist()
        if includes_partial and (not stops or stops[-1] < length):
            stops.append(length)
        for number, (start, stop) in enumerate(itertools.pairwise([0, *stops])):
            ends = np.flatnonzero(is_terminal[start:stop, seed, environment])
            stop = start + ends[0] + 1 if ends.size else stop
            yield _Episode(number, seed, environment, start, int(stop))


def _to_arrays(
    rows: Transition,
    episodes: Sequence[_Episode],
    steps: int | None,
    external: External,
) -> DatasetArrays:
    """The first `steps` of these episodes, one after the other; by default all.

    Observations and actions are those of the environment itself.
    """
    _, seeds, environments, starts, stops = np.array(episodes).T
    lengths = stops - starts
    times = np.concatenate([*map(np.arange, starts, stops)])
    where = times, np.repeat(seeds, lengths), np.repeat(environments, lengths)
    is_end = np.zeros(len(times), bool)
    is_end[np.cumsum(lengths) - 1] = True
    is_end = is_end[:steps]
    is_end[-1] = True
    flat = jax.tree.map(lambda leaf: leaf[where][:steps], rows)
    terminations = is_end & (flat.discount == 0)
    observation, action = canonical_spaces(external)

    def to_members(canonical: Canonical, rows: ArrayTree) -> dict[str, np.ndarray]:
        external = canonical.to_external(rows)
        return leaves_by_path(jax.tree.map(_narrow, external))

    return DatasetArrays(
        observations=to_members(observation, flat.obs),
        actions=to_members(action, flat.action),
        rewards=flat.reward,
        terminations=terminations,
        truncations=is_end & ~terminations,
        final_observations=to_members(
            observation, jax.tree.map(lambda leaf: leaf[is_end], flat.next_obs)
        ),
        parameters={
            name.removesuffix("_"): values[is_end]
            for name, values in flat.extras.items()
        },
    )


def _narrow(array: np.ndarray) -> np.ndarray:
    """The array in 32 bits, where that is exact."""
    narrow = array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
    return narrow if np.array_equal(narrow, array) else array


def _metadata(recipe: Recipe, environment: Environment, mode: str) -> dict[str, Any]:
    """What the file says about its origin; nothing depends on paths and clocks."""
    text, external = recipe.resolved_text, environment.own
    return {
        "rlcli": provenance.versions()["rlcli"],
        "environment": resolve(recipe)["environment"],
        "updater": recipe.updater.name,
        "observation_space": spaces.to_plain(external.observation),
        "action_space": spaces.to_plain(external.action),
        "recipe_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "policy": mode,
    }
