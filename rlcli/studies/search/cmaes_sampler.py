"""CMA-ES as a sampler of a sweep, refitted from the trials for each new one.

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

from rlcli.studies.search.space import CHOICE, Option, Space, Values

GENERATION = "rlcli:generation"  # of a trial, in Optuna's storage
_SIGMA = 1 / 6  # of the first generation, in shares of each range


def choose_numbers(
    space: Space, trials: Sequence[Any], seed: int, *, is_maximized: bool
) -> tuple[Values, dict[str, int]]:
    """The numbers of the next trial that every trial has, and its attributes.

    {} before the first result. `trials` are the complete ones, as `FrozenTrial` of
    Optuna; `seed` is that of the next one.
    """
    options = [
        option
        for option in space.options
        if option.kind != CHOICE and not option.when and option.low < option.high
    ]
    if not (options and trials):
        return {}, {}
    optimizer = fit(options, trials, seed, is_maximized=is_maximized)
    shares = zip(options, map(float, optimizer.ask()), strict=True)
    values = {option.key: option.from_share(share) for option, share in shares}
    return values, {GENERATION: optimizer.generation}


def fit(
    options: Sequence[Option], trials: Sequence[Any], seed: int, *, is_maximized: bool
) -> cmaes.CMA:
    """The optimizer of these numbers after all generations that are complete.

    A generation ends with its first trials that have a result, in the order of their
    numbers, as many as the population has.
    """
    count, sign = len(options), -1 if is_maximized else 1
    optimizer = cmaes.CMA(
        mean=np.full(count, 0.5),
        sigma=_SIGMA,
        bounds=np.tile([0.0, 1.0], (count, 1)),
        n_max_resampling=10 * count,
        seed=seed,
    )
    generations: Mapping[Any, list[Any]] = defaultdict(list)
    for each in trials:
        if isinstance(generation := each.user_attrs.get(GENERATION), int):
            generations[generation].append(each)
    while True:
        solutions = generations[optimizer.generation][: optimizer.population_size]
        if len(solutions) < optimizer.population_size:
            return optimizer
        optimizer.tell(
            [
                (
                    np.array([o.to_share(each.params[o.key]) for o in options]),
                    sign * float(each.value or 0.0),
                )
                for each in solutions
            ]
        )
