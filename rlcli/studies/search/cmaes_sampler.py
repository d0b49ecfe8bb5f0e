"""CMA-ES as a sampler of Optuna, refitted from the trials for each new one.

Optuna's own sampler stores its state as a pickle beside the trials, and unpickles it
from a journal or a database that others may have written. This one stores the
generation of each trial, a number, and computes the same state again (Hansen, 2016),
https://arxiv.org/abs/1604.00772.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import cmaes
import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from rlcli.studies.search.space import CHOICE, Option, Space

GENERATION = "rlcli:generation"  # of a trial, in Optuna's storage
_SIGMA = 1 / 6  # of the first generation, in shares of each range


class RefittedCmaEs(BaseSampler):
    """Samples the numbers that every trial has; other options are random."""

    def __init__(self, space: Space, seed: int) -> None:
        """`seed` is that of the next trial."""
        self._seed = seed
        self._random = RandomSampler(seed=seed)
        self._options = [
            option
            for option in space.options
            if option.kind != CHOICE and not option.when and option.low < option.high
        ]

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The numbers that every trial has; none before the first result."""
        if not _complete(study):
            return {}
        return {option.key: _distribution(option) for option in self._options}

    def sample_relative(
        self,
        study: Study,
        trial: FrozenTrial,
        search_space: Mapping[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Values of these numbers from the distribution of the newest generation."""
        if not search_space:
            return {}
        is_maximized = study.direction == StudyDirection.MAXIMIZE
        optimizer = self.fit(_complete(study), is_maximized=is_maximized)
        study._storage.set_trial_system_attr(  # as Optuna's own samplers do
            trial._trial_id, GENERATION, optimizer.generation
        )
        shares = map(float, optimizer.ask())
        return {
            option.key: option.from_share(share)
            for option, share in zip(self._options, shares, strict=True)
        }

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """A random value."""
        return self._random.sample_independent(
            study, trial, param_name, param_distribution
        )

    def fit(self, trials: Sequence[FrozenTrial], *, is_maximized: bool) -> cmaes.CMA:
        """The optimizer after all generations that are complete.

        A generation ends with its first trials that have a result, in the order of
        their numbers, as many as the population has.
        """
        count, sign = len(self._options), -1 if is_maximized else 1
        optimizer = cmaes.CMA(
            mean=np.full(count, 0.5),
            sigma=_SIGMA,
            bounds=np.tile([0.0, 1.0], (count, 1)),
            n_max_resampling=10 * count,
            seed=self._seed,
        )
        generations: Mapping[Any, list[FrozenTrial]] = defaultdict(list)
        for each in trials:
            if isinstance(generation := each.system_attrs.get(GENERATION), int):
                generations[generation].append(each)
        while True:
            solutions = generations[optimizer.generation][: optimizer.population_size]
            if len(solutions) < optimizer.population_size:
                return optimizer
            optimizer.tell(
                [
                    (
                        np.array(
                            [o.to_share(each.params[o.key]) for o in self._options]
                        ),
                        sign * float(each.value or 0.0),
                    )
                    for each in solutions
                ]
            )


def _complete(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _distribution(option: Option) -> BaseDistribution:
    """The distribution of a number, as `Study` suggests it."""
    if option.kind == "int":
        step = 1 if option.log else option.step
        low, high = int(option.low), int(option.high)
        return IntDistribution(low, high, log=option.log, step=step)
    return FloatDistribution(option.low, option.high, log=option.is_log)
