"""Hook: the contract of `train.hooks`, methods that are called at events of a run."""

from typing import Any

EVENTS = ("on_log", "on_episodes", "on_evaluation", "on_best", "on_checkpoint")


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
    tree of numbers and arrays, whose structure does not change.
    """

    state: Any = ()

    def on_log(self, chunk: Any) -> None:
        """At a log point, `train.log.every`: `chunk.rows` has a row of each seed."""

    def on_episodes(self, chunk: Any) -> None:
        """At a log point, if episodes have ended since the one before."""

    def on_evaluation(self, chunk: Any) -> None:
        """After an evaluation: `chunk.evaluation` has the results of each seed."""

    def on_best(self, chunk: Any) -> None:
        """After an evaluation in which a seed was better than ever before."""

    def on_checkpoint(self, chunk: Any) -> None:
        """Before a checkpoint that is due, `train.checkpoint.every`."""
