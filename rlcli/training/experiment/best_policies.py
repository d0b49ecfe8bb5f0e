"""Scores: the best policies of a run, and whether it has reached `train.stop`."""

from collections.abc import Mapping, Sequence

import numpy as np

from rlcli.errors import quote
from rlcli.runs.snapshots import Policies


class Scores:
    """The best policy of each seed so far, and whether every seed has reached a goal.

    `goals` is `train.stop`: numbers of an evaluation by name.
    """

    def __init__(self, goals: Mapping[str, float]) -> None:
        self.best: Policies | None = None
        self.has_reached_stop = False
        self._goals = goals
        self._missing: list[str] | None = None  # names of goals without a number

    def record(
        self,
        policies: Policies,
        is_active: np.ndarray,
        numbers: Sequence[Mapping[str, float]],
    ) -> None:
        """Records an evaluation, with its mean returns; `is_active`: bool `[S]`.

        `numbers` are those of each seed, as in rows of metrics. A mean return that is
        not finite, or of a frozen seed, is worse than any other.
        """
        means = policies.returns
        self.check_goals(numbers, is_active)
        means = np.where(is_active & np.isfinite(means), means, -np.inf)
        policies = policies._replace(returns=means)
        if self.best is None:
            self.best = policies
            return
        is_better = means > self.best.returns

        def choose(new: np.ndarray, old: np.ndarray) -> np.ndarray:
            shape = is_better.shape + (1,) * (new.ndim - 1)
            return np.where(is_better.reshape(shape), new, old)

        *new, acting = policies
        *old, acting_before = self.best
        # In the same order: equal progress gives equal bytes.
        chosen = {k: choose(leaf, acting_before[k]) for k, leaf in acting.items()}
        returns, steps, episodes = map(choose, new, old)
        self.best = Policies(returns, steps, episodes, chosen)

    def take_messages(self) -> list[str]:
        """What the user should know of goals, once."""
        missing, self._missing = self._missing, []
        return [
            f"`train.stop` waits for {quote(name)}, which this evaluation does not have"
            for name in missing or ()
        ]

    def check_goals(
        self, numbers: Sequence[Mapping[str, float]], is_active: np.ndarray
    ) -> None:
        """Compares the numbers of an evaluation, see `record`, with the goals."""
        names = {goal: "mean" if goal == "return" else goal for goal in self._goals}
        if self._missing is None:
            self._missing = [n for goal, n in names.items() if n not in numbers[0]]
        has_reached = all(
            numbers[seed].get(names[goal], -np.inf) >= value
            for goal, value in self._goals.items()
            for seed in np.flatnonzero(is_active).tolist()
        )
        self.has_reached_stop |= bool(self._goals) and has_reached
