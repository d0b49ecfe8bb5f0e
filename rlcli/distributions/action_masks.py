"""Action masks: the legal actions, as entry `action_mask` of a Dict observation.

The mask is `[n]` for a Discrete(n); actions with a nonzero entry are legal. Networks
do not read it, and it is not preprocessed. Instead, networks output `FORBIDDEN_VALUE`
for illegal actions: low enough that no target, loss or policy selects them, and finite,
so that its product with a probability of 0 is 0.

What counts actions, or averages over them, counts the legal ones: a space with k legal
actions gives the numbers of a space of k actions.

The mask is applied where outputs are computed (`networks.masking`, and
`updaters.model_based.transition_models` for values from a model), so rules, objectives
and policies do not handle masks. Random exploration reads the outputs (`is_allowed`),
or the mask where there are none. Observation wrappers keep the mask beside their own
output.
"""

from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float

from rlcli.errors import RlcliError
from rlcli.types import Array

MASK = "action_mask"
FORBIDDEN_VALUE = -1e9  # the value or logit of an illegal action
# The rest of an observation that is a mask alone: an array without entries.
_NOTHING = spaces.Box(0.0, 0.0, (0,))


def split_mask(
    space: gymnasium.Space,
) -> tuple[gymnasium.Space, gymnasium.Space | None]:
    """Splits an observation space into the rest and the mask (None if absent)."""
    if not isinstance(space, spaces.Dict) or MASK not in space.spaces:
        return space, None
    rest = {name: member for name, member in space.spaces.items() if name != MASK}
    return spaces.Dict(rest) if rest else _NOTHING, space.spaces[MASK]


def remove_mask(obs: Any) -> Any:
    """Returns the observation without its mask."""
    mask = get_mask(obs)
    if mask is None:
        return obs
    rest = {name: member for name, member in obs.items() if name != MASK}
    return rest or mask[..., :0].astype(np.float32)


def get_mask(obs: Any) -> Any:
    """Returns the mask of an observation, or None."""
    return obs.get(MASK) if isinstance(obs, dict) else None


def add_mask(visible: Any, mask: Any) -> Any:
    """Adds a mask to an observation, or the space of a mask to a space.

    An observation that is not a dict becomes the entry `seen`. A mask of None leaves
    it unchanged.
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
    """Raises unless the mask has one number for each action."""
    _, mask = split_mask(observation)
    is_discrete = isinstance(action, spaces.Discrete)
    if mask is None or (is_discrete and mask.shape == (int(action.n),)):
        return
    raise RlcliError(
        f"the observations have an `{MASK}` of {mask}, but the action space is "
        f"{action}",
        "a mask needs one number for each action of a Discrete space",
    )


def allowed_actions(obs: Any) -> Bool[Array, "*batch A"]:
    """Returns the legal actions; all if the mask allows none.

    Observations after the end of an episode may allow none.
    """
    mask = jnp.asarray(obs[MASK]) != 0
    return mask | ~jnp.any(mask, axis=-1, keepdims=True)


def mask_outputs(outputs: Float[Array, "..."], mask: Array) -> Float[Array, "..."]:
    """Masks the values of illegal actions; the arguments broadcast."""
    return jnp.where(mask, outputs, FORBIDDEN_VALUE)


def uniform_logits(obs: Any) -> Float[Array, "*batch A"]:
    """Returns logits of the uniform distribution over the legal actions."""
    legal = allowed_actions(obs)
    return mask_outputs(jnp.zeros(legal.shape, jnp.float32), legal)


def count_allowed(outputs: Float[Array, "*batch A"]) -> Float[Array, "*batch"]:
    """Returns the number of legal actions, given masked network outputs."""
    return jnp.sum(is_allowed(outputs), axis=-1, dtype=jnp.float32)


def uniform_like(outputs: Float[Array, "*batch A"]) -> Float[Array, "*batch A"]:
    """Returns outputs of 0, masked as network outputs are."""
    return mask_outputs(jnp.zeros_like(outputs), is_allowed(outputs))


def divide(
    outputs: Float[Array, "*batch A"], temperature: Array | float
) -> Float[Array, "*batch A"]:
    """Divides masked network outputs; those of illegal actions are below all others.

    Divided by a large temperature, they would no longer be illegal; beside values
    divided by a small one, they would be the best.
    """
    legal, scaled = is_allowed(outputs), outputs / temperature
    lowest = jnp.min(scaled, axis=-1, keepdims=True, where=legal, initial=0.0)
    # Twice, because a number far below `FORBIDDEN_VALUE` would absorb it.
    return jnp.where(legal, scaled, FORBIDDEN_VALUE + 2 * lowest)


def centre_advantages(
    values: Float[Array, "..."], mask: Array, axis: int = -1
) -> Float[Array, "..."]:
    """Subtracts the mean advantage of the legal actions, instead of that of all.

        v + A − mean A  ↦  v + A − mean of A over the legal actions

    `values` are those of a dueling head, so their mean over all actions is v. `mask`
    broadcasts to them; the actions are along `axis`.
    """
    mask = jnp.broadcast_to(mask, values.shape)
    legal_mean = jnp.mean(values, axis=axis, keepdims=True, where=mask)
    return values - legal_mean + jnp.mean(values, axis=axis, keepdims=True)


def is_allowed(outputs: Float[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Returns which actions are legal, given masked network outputs."""
    return outputs > FORBIDDEN_VALUE / 2
