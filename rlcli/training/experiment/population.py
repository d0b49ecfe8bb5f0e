"""Population: population-based training (PBT) of runs that share a program.

N members are trained in one program, each with S seeds: row n S + s of every array is
seed s of member n. The worst members copy the state of the best ones after a number of
steps (*exploit*), and their numbers, such as the learning rate, change at random
(*explore*) (Jaderberg et al., 2017, https://arxiv.org/abs/1711.09846). The copy is
complete: the state of the environments, of the policy and of the replay belong
together. The members have the same seeds, and random numbers depend on seed and step
only. So a member is, up to rounding, the run of a single recipe in which its numbers
follow a schedule.

The rounds of a population are between two chunks, after an evaluation. Random numbers
depend on the seed of the population and on the round, so a run that is resumed makes
the same rounds.

`runs.population_rounds` writes the record of a round before the checkpoint of its step,
so that a resume finds the numbers, which checkpoints do not contain.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from rlcli.errors import RlcliError
from rlcli.loop.progress import Progress
from rlcli.runs.population_rounds import (
    FILE_NAME,
    Round,
    RoundEntry,
    read_rounds,
    read_settings,
    write_rounds,
)
from rlcli.runs.statistics import bounded_iqm
from rlcli.training.experiment.experiment import ActiveRun, ChunkReport
from rlcli.types import Array, Key
from rlcli.xla import processes

QUANTILE = 0.2  # the share of the members that copy, and of those that are copied
RESAMPLE = 0.25  # the probability that a number is drawn anew
FACTORS = 0.8, 1.2  # of a number with a logarithmic range
SHIFT = 0.2  # of any other number, as a share of its range


class Noise(NamedTuple):
    """The random numbers of a round: all in [0, 1)."""

    parent: Float32[Array, "N"]  # selects one of the best members
    direction: Float32[Array, "N K"]  # below 1/2: the number decreases
    resample: Float32[Array, "N K"]
    value: Float32[Array, "N K"]  # as a share of the range


class Ranges(NamedTuple):
    """The ranges of the K options that are searched."""

    low: Float32[Array, "K"]
    high: Float32[Array, "K"]
    is_log: Bool[Array, "K"]


def draw_noise(key: Key, members: int, options: int) -> Noise:
    """The random numbers of a round for N members and K options."""
    keys = jax.random.split(key, 4)
    shape = members, options
    return Noise(
        jax.random.uniform(keys[0], (members,)),
        *(jax.random.uniform(each, shape) for each in keys[1:]),
    )


def select_parents(
    scores: Float[Array, "N"], is_alive: Bool[Array, "N"], noise: Float32[Array, "N"]
) -> Int[Array, "N"]:
    """The member whose state each member copies, or its own index if it copies none.

    Each of the worst fifth copies one of the best fifth, at least one, if that is
    better. Members that are not alive take no part. Of equal scores, the first is
    better.
    """
    members = len(scores)
    # By descending score, those that are not alive at the end; stable.
    order = jnp.lexsort((-scores, ~is_alive))
    rank = jnp.argsort(order)
    alive = jnp.sum(is_alive)
    count = jnp.maximum(1, jnp.floor(QUANTILE * alive).astype(jnp.int32))
    count = jnp.minimum(count, alive // 2)
    best = jnp.minimum((noise * count).astype(jnp.int32), jnp.maximum(count - 1, 0))
    candidate = order[best]
    copies = is_alive & (rank >= alive - count) & (scores[candidate] > scores)
    return jnp.where(copies, candidate, jnp.arange(members))


def exploit(progress: Progress, parents: Int[Array, "N"], seeds: int) -> Progress:
    """The progress of all members, each with the state and the numbers of its parent.

    The rows after those of the N members, padding for equal devices, repeat the last.
    """
    rows = (parents[:, None] * seeds + jnp.arange(seeds)).ravel()
    padding = progress.numbers.shape[0] - rows.shape[0]
    rows = jnp.concatenate([rows, jnp.repeat(rows[-1:], padding)])
    fields = progress._asdict()
    own = {name: fields.pop(name) for name in ("iteration", "position", "seed", "data")}
    return Progress(**own, **jax.tree.map(lambda leaf: leaf[rows], fields))


def explore(
    values: Float32[Array, "N K"],
    has_copied: Bool[Array, "N"],
    noise: Noise,
    ranges: Ranges,
) -> Float32[Array, "N K"]:
    """The numbers of all members, changed for those that have copied another one.

    With probability 1/4 a number is drawn anew from its range. Otherwise, equally
    likely, it decreases or increases: by the factor 0.8 or 1.2 if its range is
    logarithmic, else by a fifth of its range. It stays in its range.
    """
    low, high = ranges.low, ranges.high
    increases = noise.direction >= 0.5
    scaled = values * jnp.where(increases, FACTORS[1], FACTORS[0])
    shifted = values + jnp.where(increases, SHIFT, -SHIFT) * (high - low)
    # A logarithm of what is not positive would be nan, also where it is not used.
    ratio = jnp.where(ranges.is_log, high / jnp.where(ranges.is_log, low, 1.0), 1.0)
    drawn = jnp.where(
        ranges.is_log, low * ratio**noise.value, low + noise.value * (high - low)
    )
    changed = jnp.where(ranges.is_log, scaled, shifted)
    changed = jnp.where(noise.resample < RESAMPLE, drawn, changed)
    changed = jnp.clip(changed, low, high)
    return jnp.where(has_copied[:, None], changed, values)


_exploit = jax.jit(exploit, static_argnames="seeds", donate_argnums=0)


@jax.jit
def _decide(
    key: Key, scores: Array, is_alive: Array, values: Array, ranges: Ranges
) -> tuple[Array, Array]:
    """Selects the member that each one copies (itself if none), and the new numbers."""
    noise = draw_noise(key, *values.shape)
    parents = select_parents(scores, is_alive, noise.parent)
    has_copied = parents != jnp.arange(len(parents))
    return parents, explore(values[parents], has_copied, noise, ranges)


class Population:
    """The rounds of runs that are trained as a population.

    Their program has begun, or has been restored: the numbers of the members become
    those of the last round before its step.
    """

    def __init__(self, members: Sequence[ActiveRun]) -> None:
        self._members = members
        self._folder = members[0].run.folder.parent
        self._settings = settings = read_settings(self._folder)
        self._names = [member.run.folder.absolute().name for member in members]
        if self._names != [*settings.members]:
            raise RlcliError(
                f"`{self._folder / FILE_NAME}` is of another population",
                "restore the folders of its members",
            )
        self._experiments = [member.experiment for member in members]
        self._program = self._experiments[0].program
        self._seeds = len(self._experiments[0].setup.seeds)
        places = [*self._program.setup.numbers]
        options = settings.options
        if not {place for each in options for place in each.places} <= {*places}:
            raise RlcliError(
                f"`{self._folder / FILE_NAME}` names numbers that the program has not",
                "restore the file from a copy of the folder",
            )
        self._columns = [[places.index(each) for each in o.places] for o in options]
        self._ranges = Ranges(
            np.array([option.low for option in options], np.float32),
            np.array([option.high for option in options], np.float32),
            np.array([option.is_log for option in options]),
        )
        numbers = np.asarray(self._program.setup.numbers_array)
        first = numbers[:: self._seeds][: len(self._names)]
        # float32 [N, K]
        self._values = first[:, [columns[0] for columns in self._columns]]
        self._rounds: list[Round] = []
        self._restore()
        self._set_options()

    def _restore(self) -> None:
        """Continues with the last round before the step of the program."""
        step, keys = self._program.step, [each.key for each in self._settings.options]
        rounds = read_rounds(self._folder, self._names, keys)
        self._rounds = [each for each in rounds if each.step <= step]
        if len(self._rounds) < len(rounds):  # from an older checkpoint
            write_rounds(self._folder, self._rounds)
        if self._rounds:
            members = self._rounds[-1].members
            values = [[members[n].options[k] for k in keys] for n in self._names]
            self._values = np.array(values, np.float32)
            progress = self._program.progress
            self._program.replace_progress(self._with_values(progress))

    def _with_values(self, progress: Progress) -> Progress:
        """The progress with the current numbers of all members."""
        numbers = np.array(processes.fetch(progress.numbers))
        rows = np.repeat(self._values, self._seeds, axis=0)
        rows = np.pad(rows, ((0, len(numbers) - len(rows)), (0, 0)), "edge")
        for column, places in enumerate(self._columns):
            numbers[:, places] = rows[:, [column]]
        return progress._replace(numbers=numbers)

    def _set_options(self) -> None:
        """The numbers of each member become columns of its metrics."""
        for experiment, values in zip(self._experiments, self._values, strict=True):
            experiment.log_rows.options = self._options(values)

    def _options(self, values: np.ndarray) -> dict[str, float]:
        keys = [option.key for option in self._settings.options]
        return dict(zip(keys, values.tolist(), strict=True))

    def advance(self, reports: Sequence[ChunkReport]) -> list[ChunkReport]:
        """Makes a round if one is due after a chunk; marks the members that copied.

        There is none at the end of the run: nothing would be learned after it.
        """
        first = self._experiments[0]
        evaluations = first.step // (first.recipe.train.evaluate.every or first.step)
        has_evaluated = any(report.evaluation for report in reports)
        is_due = evaluations % self._settings.ready == 0 and not first.is_finished
        if not has_evaluated or not is_due:
            return [*reports]
        number = evaluations // self._settings.ready
        scores = np.array([self._score(report) for report in reports])
        parents = self._make_round(number, scores)
        self._record(number, scores, parents)
        marked = [*reports]
        for index, parent in enumerate(parents):
            if parent != index:
                fields = {"copied": self._names[parent]}
                rows = [{**row, **fields} for row in reports[index].evaluation]
                marked[index] = reports[index]._replace(evaluation=rows)
        return marked

    def _score(self, report: ChunkReport) -> float:
        """The IQM over seeds of the returns of an evaluation; -inf without one."""
        rows = [*report.evaluation]
        if not rows:
            return -math.inf
        returns = [
            -math.inf if "frozen" in row else row["evaluation"]["mean"] for row in rows
        ]
        score = bounded_iqm(returns, worst=-math.inf)
        return score if math.isfinite(score) else -math.inf

    def _make_round(self, number: int, scores: np.ndarray) -> list[int]:
        """Copies and changes members; returns which one each has copied, or itself."""
        is_alive = np.array([not each.failure for each in self._experiments])
        key = jax.random.fold_in(jax.random.key(self._settings.seed), number)
        decision = _decide(key, scores, is_alive, self._values, self._ranges)
        parents, self._values = map(np.asarray, decision)
        has_copied = parents != np.arange(len(parents))
        if not has_copied.any():
            return parents.tolist()
        progress = _exploit(self._program.progress, parents, seeds=self._seeds)
        self._program.replace_progress(self._with_values(progress))
        for index in np.flatnonzero(has_copied):
            parent = self._experiments[parents[index]]
            self._experiments[index].failures.copy_from(parent.failures)
        self._set_options()
        return parents.tolist()

    def _record(self, number: int, scores: np.ndarray, parents: Sequence[int]) -> None:
        members = {
            name: RoundEntry(
                score=float(scores[index]) if np.isfinite(scores[index]) else None,
                copied=None if parents[index] == index else self._names[parents[index]],
                options=self._options(self._values[index]),
            )
            for index, name in enumerate(self._names)
        }
        self._rounds.append(Round(number, self._program.step, members))
        write_rounds(self._folder, self._rounds)
