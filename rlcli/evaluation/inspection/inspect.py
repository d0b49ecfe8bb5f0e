"""Inspect: what an updater gets and does next; the function behind `rlcli inspect`."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np

from rlcli.evaluation.inspection import inspection_records as records
from rlcli.evaluation.inspection.network_layers import (
    describe_activations,
    describe_layers,
)
from rlcli.evaluation.inspection.next_update import NextUpdate, run_next_update
from rlcli.evaluation.inspection.signs import find_signs
from rlcli.evaluation.inspection.values import visit
from rlcli.evaluation.load import load
from rlcli.evaluation.targets import check_whole
from rlcli.registry.paths import resolves
from rlcli.runs.locate import locate_checkpoint, owning_run
from rlcli.types import Transition
from rlcli.xla.tree_paths import leaves_by_path

_MOST_STORED = 2_000  # steps of a replay, for its statistics


@resolves("run")
def inspect(
    run: str | Path,
    *,
    checkpoint: int | None = None,
    seed: int | None = None,
    episodes: int = 5,
    trust: bool | None = None,
) -> records.Inspection:
    """Shows what the updater of a run gets and does in its next update.

    Restores a checkpoint as `rlcli.resume` does, trains up to and with the next update
    of one seed, and writes nothing.

    Args:
        run: a run's folder, or a checkpoint file.
        checkpoint: the step of a checkpoint, by default the latest.
        seed: a seed of the run, by default the first.
        episodes: episodes of the greedy policy, to compare its values with returns.
        trust: whether the recipe may import code from outside rlcli and plug-ins. By
            default that of your own runs may, see `rlcli.trust`.

    Raises:
        RlcliError: if there is no such run, checkpoint or seed; if the file is damaged;
            or if its recipe imports code that is not trusted.
    """
    check_whole("episodes", episodes, 0)
    file = locate_checkpoint(run, checkpoint)
    update = run_next_update(file, seed, trust)
    notes = [update.message] if update.message else []
    seed = int(update.progress.seed)
    value, probabilities = None, None
    if episodes:
        policy = load(file, seed=seed, trust=trust)
        value, probabilities, reasons = visit(policy, episodes, seed=0)
        notes += reasons
    owner = owning_run(file)
    stored, steps = _read_replay(update)
    found = records.Inspection(
        run=None if owner is None else str(owner.folder),
        checkpoint=str(file),
        updater=update.recipe.updater.name,
        seed=seed,
        step=update.iteration * update.setup.steps_per_iteration,
        update=int(update.setup.agent.count_updates(update.iteration)),
        gradient_steps=len(update.gradient_steps),
        batch=[*_describe_batch(update)],
        losses=[*_describe_losses(update)],
        layers=describe_layers(update),
        activations=describe_activations(update),
        actions=[*_describe_actions(update, steps, probabilities)],
        value=value,
        replay=_describe_replay(update, stored, steps),
        signs=(),
        notes=notes,
    )
    return dataclasses.replace(found, signs=find_signs(found))


def _describe_batch(update: NextUpdate) -> Iterator[records.ArrayRecord]:
    """The arrays of the batch, and those that its first losses are computed from."""
    rows, is_row = update.batch, update.weight > 0
    fields = {"obs": rows.obs, "action": rows.action, "reward": rows.reward}
    fields |= {"discount": rows.discount, "next_obs": rows.next_obs}
    fields |= {"first": rows.first, "last": rows.last}
    for name, leaf in leaves_by_path(fields).items():
        yield describe_array(name, np.asarray(leaf), is_row)
    yield describe_array("weight", update.weight, np.ones_like(is_row))
    found: dict[str, records.ArrayRecord] = {}
    for record in update.gradient_steps:
        arrays = {**record.losses.row_metrics, **record.losses.inputs}
        for name, leaf in arrays.items():
            array = np.asarray(leaf)
            if array.shape[-record.weight.ndim :] != record.weight.shape:
                continue  # of a user's updater
            mask = np.broadcast_to(record.weight > 0, array.shape)
            found.setdefault(name, describe_array(name, array, mask))
    yield from found.values()


def describe_array(
    name: str, array: np.ndarray, mask: np.ndarray
) -> records.ArrayRecord:
    """Statistics of an array where a mask of its first axes is true."""
    values = array[mask].astype(np.float64)
    finite = values[np.isfinite(values)]
    known = finite if finite.size else np.array([np.nan])
    return records.ArrayRecord(
        name,
        array.shape,
        mean=float(known.mean()),
        std=float(known.std()),
        min=float(known.min()),
        max=float(known.max()),
        finite=finite.size == values.size,
        constant=len(values) > 1 and bool(np.all(values == values[:1])),
    )


def _describe_losses(update: NextUpdate) -> Iterator[records.LossRecord]:
    """The terms of the first loss of each group of parameters."""
    seen: set[tuple[str, ...]] = set()
    for record in update.gradient_steps:
        groups = tuple(record.params)
        if groups in seen:
            continue
        seen.add(groups)
        for term in record.losses.terms:
            is_row = record.weight > 0
            weight = record.weight if term.is_weighted else is_row
            total = np.sum(np.where(is_row, term.value * weight, 0.0))
            value = float(total / max(int(is_row.sum()), 1))
            yield records.LossRecord(groups, term.name, value)


def _describe_actions(
    update: NextUpdate, stored: Transition | None, table: np.ndarray | None
) -> Iterator[records.ActionRecord]:
    """How often each action of a Discrete space occurs, and how probable it is."""
    space = update.setup.environment.own.action
    if not isinstance(space, gymnasium.spaces.Discrete):
        return

    def fractions(actions: np.ndarray) -> np.ndarray:
        counts = np.bincount(actions.astype(int).ravel(), minlength=n)[:n]
        return counts / max(actions.size, 1)  # none if every weight is 0

    n, start = int(space.n), int(space.start)
    batch = fractions(np.asarray(update.batch.action)[update.weight > 0])
    replay = None if stored is None else fractions(np.asarray(stored.action))
    for action in range(n):
        yield records.ActionRecord(
            action + start,
            float(batch[action]),
            None if replay is None else float(replay[action]),
            None if table is None else float(table[:, action].mean()),
        )


def _read_replay(update: NextUpdate) -> tuple[int, Transition | None]:
    """The number of steps in the replay, and some of them; None without a replay."""
    inside, progress = update.setup.agent.inside, update.progress
    if inside is None or inside.contents is None:
        return 0, None
    inputs = progress.agent, update.iteration, progress.unroll, progress.data
    found = inside.contents(*inputs, _MOST_STORED)
    return found[0], jax.device_get(found[1])


def _describe_replay(
    update: NextUpdate, stored: int, steps: Transition | None
) -> records.ReplayRecord | None:
    replay = update.recipe.replay
    if steps is None or replay is None or not len(steps.reward):
        return None
    reward = np.asarray(steps.reward)
    options: Any = replay.options
    return records.ReplayRecord(
        name=replay.name,
        capacity=int(options.get("capacity", 0)),
        stored=stored,
        episodes=float(np.mean(steps.last)),
        terminated=float(np.mean(np.asarray(steps.discount) == 0)),
        rewards=describe_array("reward", reward, np.ones_like(reward, bool)),
        rewarded=float(np.mean(reward != 0)),
    )
