"""Reference scores: returns of a random and of a good policy, to normalize returns.

Only environments whose authors state when they count as solved: `solved` is the
`reward_threshold` in Gymnasium's registry, except for the deterministic lake, where it
is the largest possible return. `random` is the mean return of uniformly random actions
in Gymnasium's environment, measured over at least 200 episodes (its standard error is
below 1 % of the range). Both are for an environment with its default options.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Reference(NamedTuple):
    """The returns that are normalized to 0 and 1."""

    random: float
    solved: float


REFERENCES: Mapping[str, Reference] = MappingProxyType(
    {
        "Acrobot-v1": Reference(-498.5, -100.0),
        "CartPole-v1": Reference(22.2, 475.0),
        "FrozenLake-v1": Reference(0.015, 0.7),
        "FrozenLakeNonSlippery-v0": Reference(0.014, 1.0),
        "MountainCar-v0": Reference(-200.0, -110.0),
        "MountainCarContinuous-v0": Reference(-33.3, 90.0),
        "Taxi-v4": Reference(-776.0, 8.0),
    }
)
