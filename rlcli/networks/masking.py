"""Masking: networks whose outputs mask illegal actions."""

from collections.abc import Callable

import gymnasium
import jax
from gymnasium import spaces as kinds
from jaxtyping import Bool

from rlcli.distributions import action_masks
from rlcli.networks.heads import Head
from rlcli.networks.inputs import Pair
from rlcli.types import Array, ArrayTree, Key, Network, Params
from rlcli.xla.indexing import select_index


def mask_network(network: Network, head: Head, space: gymnasium.Space) -> Network:
    """Masks the outputs of a network with the action mask of its observations, if any.

    A function of observation and action masks the output of the given action.
    """
    pair = isinstance(space, Pair)
    observation, *action = space.spaces if isinstance(space, Pair) else (space,)
    _, mask_space = action_masks.split_mask(observation)
    if mask_space is None or head.mask is None or not (pair or head.actions):
        return network
    mask_fn = head.mask

    def mask_outputs(outputs: ArrayTree, mask: Array) -> ArrayTree:
        if head.centre is not None:
            outputs = head.centre(outputs, mask)
        return mask_fn(outputs, mask)

    def action_mask(inputs: ArrayTree) -> Bool[Array, "..."]:
        if not pair:
            return action_masks.allowed_actions(inputs)
        obs, actions = inputs
        (action_space,) = action
        start = (
            int(action_space.start) if isinstance(action_space, kinds.Discrete) else 0
        )
        return select_index(action_masks.allowed_actions(obs), actions - start)

    def with_mask(function: Callable[..., tuple]) -> Callable[..., tuple]:
        """`apply` or `learn` of the network, with masked outputs."""

        def mask_function(params, key, inputs, carry, first):
            outputs, rest = function(params, key, inputs, carry, first)
            mask = jax.lax.stop_gradient(action_mask(inputs))
            return mask_outputs(outputs, mask), rest

        return mask_function

    def read_and_mask(
        params: Params, key: Key | None, features: Array, inputs: ArrayTree
    ) -> ArrayTree:
        assert network.shared is not None
        outputs = network.shared.read(params, key, features, inputs)
        return mask_outputs(outputs, jax.lax.stop_gradient(action_mask(inputs)))

    return network._replace(
        apply=with_mask(network.apply),
        learn=None if network.learn is None else with_mask(network.learn),
        shared=network.shared and network.shared._replace(read=read_and_mask),
    )
