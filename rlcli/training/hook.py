"""Hook: the contract of `train.hooks`, methods that are called at events of a run."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

EVENTS = ("on_log", "on_episodes", "on_evaluation", "on_best", "on_checkpoint")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """One chunk of a run, as `rlcli.chunks` yields it: its metrics and evaluations."""

    run: Path
    step: int  # environment steps of one seed at the end of the chunk
    rows: Sequence[Mapping[str, Any]]  # of metrics: one per log point and seed
    evaluation: Sequence[Mapping[str, Any]]  # one per seed, after an evaluation
    _experiment: Any = dataclasses.field(repr=False)
    _effects: Any = dataclasses.field(repr=False)  # a `HookEffects`

    def log(self, values: Mapping[str, Any]) -> None:
        """Logs numbers: in the rows of this step, the panel and the trackers.

        A value is a number, or a list of one number of each seed. Call it before the
        next chunk.
        """
        self._check_current()
        self._effects.log(values)

    def set(self, place: str, value: float) -> None:
        """Sets a number of the running program, from the next step on.

        `place` is that of an option in the recipe: `optimizer.learning_rate`,
        `policy.epsilon`, or one that `train.adjustable` lists. In an environment on the
        host, `environment.speed` calls `set_speed(value)`, or sets the attribute
        `speed`, of each copy. The run records it with the step: a resume continues with
        the number, and a reproduction sets it again. Evaluations use the environment of
        the recipe.

        Raises:
            RlcliError: if there is no such number.
        """
        self._check_current()
        self._effects.set(place, value)

    @property
    def numbers(self) -> Mapping[str, float]:
        """The numbers of the program that `set` takes, by their places."""
        self._check_current()
        return self._effects.numbers

    @functools.cached_property
    def acting(self) -> Any:
        """The acting state of the policies, `[seeds, ...]`, owned by the caller.

        Fetched on first access, which has to happen before the next chunk.
        """
        self._check_current()
        from jax import tree  # here: imports JAX

        return tree.map(np.array, self._experiment.acting_state())

    def _check_current(self) -> None:
        if self._experiment.step != self.step:
            raise ValueError(
                f"expected access at step {self.step:,}, before the next chunk, but "
                f"the run is at step {self._experiment.step:,}"
            )


class Hook:
    """Acts at the events of a run: subclass it, and name it in `train.hooks`.

        class Curriculum(Hook):
            def __init__(self, *, speed: float = 0.5) -> None:
                self.state = {"speed": speed}

            def on_evaluation(self, chunk):
                if chunk.evaluation[0]["evaluation"]["mean"] > 100:
                    self.state["speed"] += 0.1
                    chunk.set("environment.speed", self.state["speed"])
                chunk.log({"speed": self.state["speed"]})

    Its keyword-only parameters are its options. The events are at fixed steps, whatever
    the speed of the machine. Each method gets the `rlcli.training.Chunk`
    that ends there, with its rows, `log` and `set`. `state` is saved in checkpoints: a
    tree of numbers and arrays, whose structure, shapes and dtypes do not change.
    """

    state: Any = ()

    def on_log(self, chunk: Chunk) -> None:
        """At a log point, `train.log.every`: `chunk.rows` has a row of each seed."""

    def on_episodes(self, chunk: Chunk) -> None:
        """At a log point, if episodes have ended since the one before."""

    def on_evaluation(self, chunk: Chunk) -> None:
        """After an evaluation: `chunk.evaluation` has the results of each seed."""

    def on_best(self, chunk: Chunk) -> None:
        """After an evaluation in which a seed was better than ever before."""

    def on_checkpoint(self, chunk: Chunk) -> None:
        """Before a checkpoint that is due, `train.checkpoint.every`."""
