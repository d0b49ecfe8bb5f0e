"""Population: population-based training of runs that share a program.

The rounds of a population are between two chunks, after an evaluation. Random numbers
depend on the seed of the population and on the round, so a run that is resumed makes
the same rounds.

`runs.population_rounds` writes the record of a round before the checkpoint of its step,
so that a resume finds the numbers, which checkpoints do not contain.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.errors import RlcliError
from rlcli.loop.exploit_explore import (
    Ranges,
    draw_noise,
    exploit,
    explore,
    select_parents,
)
from rlcli.loop.progress import Progress, numbers_array
from rlcli.runs.population_rounds import (
    FILE_NAME,
    Round,
    RoundEntry,
    read_rounds,
    read_settings,
    write_rounds,
)
from rlcli.runs.statistics import bounded_iqm
from rlcli.training.experiment.experiment import ChunkReport
from rlcli.training.run_writer import ActiveRun
from rlcli.types import Array, Key
from rlcli.xla import processes

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
        self._values = self._initial_values()  # float32 [N, K]
        self._rounds: list[Round] = []
        self._restore()
        self._set_options()

    def _initial_values(self) -> np.ndarray:
        numbers = np.asarray(numbers_array(self._program.setup))
        first = numbers[:: self._seeds][: len(self._names)]
        return first[:, [columns[0] for columns in self._columns]]

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
        return [
            report
            if parent == index
            else report._replace(
                evaluation=[
                    {**row, "copied": self._names[parent]} for row in report.evaluation
                ]
            )
            for index, (report, parent) in enumerate(zip(reports, parents, strict=True))
        ]

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
