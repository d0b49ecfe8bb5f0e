"""Masks: which actions the rules allow, an entry `action_mask` of a Dict observation.

Gymnasium and Pgx agree on the name: `[n]` for a Discrete(n), in which what is not 0 is
allowed. No network sees it, and nothing preprocesses it: it says what outputs mean.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

MASK = "action_mask"


def apart(space: gymnasium.Space) -> tuple[gymnasium.Space, gymnasium.Space | None]:
    """What is to be seen of a space, and that of the mask, if it has one."""
    if not isinstance(space, spaces.Dict) or MASK not in space.spaces:
        return space, None
    rest = {name: each for name, each in space.spaces.items() if name != MASK}
    return spaces.Dict(rest), space.spaces[MASK]


def without(obs: Any) -> Any:
    """What is to be seen of an observation: all but the mask."""
    if not isinstance(obs, dict) or MASK not in obs:
        return obs
    return {name: each for name, each in obs.items() if name != MASK}
