"""Masks: which actions the rules allow, an entry `action_mask` of a Dict observation.

It is `[n]` for a Discrete(n), and what is not 0 is allowed. No network sees it, and
nothing preprocesses it. Instead, what networks say of a forbidden action is
`FORBIDDEN_VALUE` where they are made: so low that no rule, no objective and no policy
chooses it, and finite, so that its probability of 0 makes 0 of it.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import jax.numpy as jnp
from gymnasium import spaces

from rlcli.errors import RlcliError
from rlcli.types import Array

MASK = "action_mask"
FORBIDDEN_VALUE = -1e9  # the value, or the logit, of an action that is not allowed


def split_mask(
    space: gymnasium.Space,
) -> tuple[gymnasium.Space, gymnasium.Space | None]:
    """What is to be seen of a space, and that of the mask, if it has one."""
    if not isinstance(space, spaces.Dict) or MASK not in space.spaces:
        return space, None
    rest = {name: member for name, member in space.spaces.items() if name != MASK}
    return spaces.Dict(rest), space.spaces[MASK]


def remove_mask(obs: Any) -> Any:
    """What is to be seen of an observation: all but the mask."""
    if get_mask(obs) is None:
        return obs
    return {name: member for name, member in obs.items() if name != MASK}


def get_mask(obs: Any) -> Any:
    """The mask of an observation, as it is there; None if it has none."""
    return obs.get(MASK) if isinstance(obs, dict) else None


def add_mask(visible: Any, mask: Any) -> Any:
    """What is shown, or its space, with the mask that belongs to it, or its space.

    What has no name is `seen`; without a mask, None, it stays as it is.
    """
    if mask is None:
        return visible
    if isinstance(visible, spaces.Space):
        entries = (
            dict(visible) if isinstance(visible, spaces.Dict) else {"seen": visible}
        )
        return spaces.Dict({**entries, MASK: mask})
    return {**(visible if isinstance(visible, dict) else {"seen": visible}), MASK: mask}


def check_mask(observation: gymnasium.Space, action: gymnasium.Space) -> None:
    """Refuses a mask that is not one number for each action."""
    _, mask = split_mask(observation)
    is_discrete = isinstance(action, spaces.Discrete)
    if mask is None or (is_discrete and mask.shape == (int(action.n),)):
        return
    raise RlcliError(
        f"the observations have an `{MASK}` of {mask}, and the actions are {action}",
        "a mask has one number for each of the actions of a Discrete space",
    )


def allowed_actions(obs: Any) -> Array:
    """What is allowed, `[..., n]` bool; where nothing is, as after an end, all is."""
    mask = jnp.asarray(obs[MASK]) != 0
    return mask | ~jnp.any(mask, axis=-1, keepdims=True)


def mask_outputs(outputs: Array, mask: Array) -> Array:
    """The outputs of what is allowed; the two are broadcast."""
    return jnp.where(mask, outputs, FORBIDDEN_VALUE)


def is_allowed(outputs: Array) -> Array:
    """Which actions are, by what networks say of them."""
    return outputs > FORBIDDEN_VALUE / 2
