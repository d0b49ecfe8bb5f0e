"""Next update: the update with which a run would continue from a checkpoint."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.loop import make_loop
from rlcli.loop.progress import AXES, Progress, Setup
from rlcli.loop.seeds import squeeze_seed
from rlcli.recipe import Recipe
from rlcli.runs import snapshots
from rlcli.runs.snapshots import CheckpointContent
from rlcli.types import Transition
from rlcli.updaters.learner import GradientStepRecord
from rlcli.xla.taps import BATCH, GRADIENT_STEP, collect_taps

_MOST_ITERATIONS = 2**20  # without an update
_RESTARTS = "environment/restarts"  # of environments, not of seeds
_SHARED = {"environment/info_names"}  # by all seeds
_ENVIRONMENT = "environment."


class NextUpdate(NamedTuple):
    """One seed of a checkpoint, and what its updater gets and does next."""

    recipe: Recipe
    setup: Setup
    progress: Progress  # at the checkpoint: NumPy arrays without an axis for seeds
    batch: Transition  # NumPy arrays `[T, B, ...]`, normalized if the recipe says so
    weight: np.ndarray  # `[T, B]`
    gradient_steps: list[GradientStepRecord]  # of NumPy arrays
    message: str  # what could not be restored, or ""

    @property
    def iteration(self) -> int:
        """Iterations before the checkpoint."""
        return int(self.progress.iteration)


def run_next_update(file: Path, seed: int | None, trust: bool | None) -> NextUpdate:
    """Restores one seed of a checkpoint, and trains up to and with its next update.

    Writes nothing. `seed`: by default the first.
    """
    content = snapshots.read_checkpoint(file)
    recipe = snapshots.snapshot_recipe(file, trust=trust)
    seed = snapshots.choose_seed(file, content.seeds, seed)
    train = dataclasses.replace(
        recipe.train, devices=1, data_parallel=1, seed=seed, seeds=1
    )
    recipe = dataclasses.replace(recipe, train=train)
    setup = _with_hook_numbers(build(recipe, [seed]), content.numbers)
    loop = make_loop(setup)
    progress, message = snapshots.restore_progress(
        _take_seed(content, seed), recipe, setup, loop
    )
    before = jax.device_get(progress._replace(environment=()))  # `advance` donates it
    before = squeeze_seed(before, AXES)
    iterations, taps = 0, []
    try:
        with collect_taps() as taps:
            while not any(tap.name == BATCH for tap in taps):
                if iterations > _MOST_ITERATIONS:
                    raise RlcliError(
                        f"`{file}` has no update in the next {iterations:,} iterations",
                        "choose a later checkpoint",
                    )
                count = _until_update(setup, int(progress.iteration))
                progress, _ = loop.advance(progress, count)
                jax.effects_barrier()
                iterations += count
    finally:
        loop.close(progress)
    begins = [index for index, tap in enumerate(taps) if tap.name == BATCH]
    end = begins[1] if len(begins) > 1 else len(taps)
    batch, weight = taps[begins[0]].value
    steps = [tap.value for tap in taps[:end] if tap.name == GRADIENT_STEP]
    return NextUpdate(recipe, setup, before, batch, np.asarray(weight), steps, message)


def _until_update(setup: Setup, iteration: int) -> int:
    """Iterations until the next update."""
    count = setup.agent.count_updates
    made, number = count(iteration), 1
    while count(iteration + number) == made and number < _MOST_ITERATIONS:
        number += 1
    return number


def _take_seed(content: CheckpointContent, seed: int) -> CheckpointContent:
    """The content of a checkpoint for one of its seeds."""
    index = content.seeds.index(seed)

    def take(path: str, leaf: Any) -> Any:
        is_shared = path in _SHARED or getattr(AXES, path.split("/")[0]) is None
        return leaf if is_shared else leaf[index : index + 1]

    leaves = content.progress.items()
    progress = {path: take(path, leaf) for path, leaf in leaves if path != _RESTARTS}
    return content._replace(seeds=(seed,), progress=progress)


def _with_hook_numbers(setup: Setup, set_numbers: Mapping[str, float]) -> Setup:
    """The setup with the numbers that hooks had set, by their places."""
    host, numbers = setup.environment.host, dict(setup.numbers)
    for place, value in set_numbers.items():
        if place in numbers:
            numbers[place] = value
        elif place.startswith(_ENVIRONMENT) and host and host.set_number:
            host.set_number(None, place.removeprefix(_ENVIRONMENT), value)
    return setup._replace(numbers=numbers)
