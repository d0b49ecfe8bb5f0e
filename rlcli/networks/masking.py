"""Masking: networks that say of what is not allowed that it is next to worthless."""

from __future__ import annotations

import gymnasium
import jax
from gymnasium import spaces as kinds

from rlcli import action_masks
from rlcli.networks.heads import Head
from rlcli.networks.inputs import Pair
from rlcli.types import Array, ArrayTree, Key, Network, Params
from rlcli.xla.indexing import select_index


def mask_network(network: Network, head: Head, space: gymnasium.Space) -> Network:
    """A network whose outputs obey the mask that its observations carry, if any.

    One of the pair of observation and action says it of the action that it is given.
    """
    pair = isinstance(space, Pair)
    visible, *action = space.spaces if isinstance(space, Pair) else (space,)
    _, mask = action_masks.split_mask(visible)
    obey = head.mask
    if mask is None or obey is None or not (pair or head.actions):
        return network

    def action_mask(inputs: ArrayTree) -> Array:
        if not pair:
            return action_masks.allowed_actions(inputs)
        obs, actions = inputs
        (action_space,) = action
        start = (
            int(action_space.start) if isinstance(action_space, kinds.Discrete) else 0
        )
        return select_index(action_masks.allowed_actions(obs), actions - start)

    def apply(
        params: Params,
        key: Key | None,
        inputs: ArrayTree,
        carry: ArrayTree,
        first: Array,
    ) -> tuple[ArrayTree, ArrayTree]:
        outputs, carries = network.apply(params, key, inputs, carry, first)
        return obey(outputs, jax.lax.stop_gradient(action_mask(inputs))), carries

    return network._replace(apply=apply)
