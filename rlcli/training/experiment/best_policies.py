"""Scores: the best policies of a run, and whether it has reached `train.stop`."""

import numpy as np

from rlcli.runs.snapshots import Policies


class Scores:
    """The best policy of each seed so far, and whether every seed has reached a goal.

    `goal` is the return of `train.stop`, if the recipe has it.
    """

    def __init__(self, goal: float | None) -> None:
        self.best: Policies | None = None
        self.has_reached_stop = False
        self._goal = goal

    def record(self, policies: Policies, is_active: np.ndarray) -> None:
        """Records an evaluation, with its mean returns; `is_active`: bool `[S]`.

        A mean return that is not finite, or of a frozen seed, is worse than any other.
        """
        means = policies.returns
        if self._goal is not None and np.all(means[is_active] >= self._goal):
            self.has_reached_stop = True
        means = np.where(is_active & np.isfinite(means), means, -np.inf)
        policies = policies._replace(returns=means)
        if self.best is None:
            self.best = policies
            return
        is_better = means > self.best.returns

        def choose(new: np.ndarray, old: np.ndarray) -> np.ndarray:
            shape = is_better.shape + (1,) * (new.ndim - 1)
            return np.where(is_better.reshape(shape), new, old)

        old = self.best
        self.best = Policies(
            returns=choose(means, old.returns),
            steps=choose(policies.steps, old.steps),
            episodes=choose(policies.episodes, old.episodes),
            acting={  # in the same order: equal progress gives equal bytes
                path: choose(leaf, old.acting[path])
                for path, leaf in policies.acting.items()
            },
        )
