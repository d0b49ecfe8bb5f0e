"""Reset options: numbers that every episode of a Gymnasium environment draws.

The environment gets them as `reset(options={name: number})`. They are drawn from the
seed of the episode, so a run that replays its episodes resumes exactly.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from rlcli.schedules import RandomNumber

RandomNumbers = Mapping[str, RandomNumber]
_STREAM = 0x0D7A35  # of the numbers: the environment draws from its seed, too


def draw_numbers(random_numbers: RandomNumbers, seed: int) -> dict[str, float]:
    """The numbers of the episode that begins with a seed, by name."""
    rng = np.random.default_rng([seed, _STREAM])
    return {
        name: float(number.quantile(rng.random()))
        for name, number in random_numbers.items()
    }


def draw_from(
    random_numbers: RandomNumbers,
) -> Callable[[int], dict[str, float]] | None:
    """`ExternalEnvironment.draw` of these numbers."""
    return functools.partial(draw_numbers, random_numbers) if random_numbers else None


def with_reset_options(
    spec: EnvSpec, options: dict[str, Any], random_numbers: RandomNumbers
) -> EnvSpec:
    """A spec with keyword arguments, whose environments draw reset options."""
    # Here, because `gymnasium.make` may use their names.
    spec = dataclasses.replace(spec, kwargs=spec.kwargs | options)
    if not random_numbers:
        return spec
    # Plain data: it is sent to the processes of a vector.
    plain = {name: tuple(number) for name, number in random_numbers.items()}
    path = f"{__name__}:{RandomResetOptions.__name__}"
    wrapper = WrapperSpec("RandomResetOptions", path, {"random_numbers": plain})
    wrappers = (*spec.additional_wrappers, wrapper)
    return dataclasses.replace(spec, additional_wrappers=wrappers)


class RandomResetOptions(gymnasium.Wrapper):
    """Adds the numbers of an episode to the options of its reset."""

    def __init__(
        self, env: gymnasium.Env, random_numbers: Mapping[str, tuple[Any, Any]]
    ) -> None:
        super().__init__(env)
        self._numbers = {k: RandomNumber(*v) for k, v in random_numbers.items()}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets with the numbers of that seed."""
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        own = draw_numbers(self._numbers, seed)
        return self.env.reset(seed=seed, options={**(options or {}), **own})
