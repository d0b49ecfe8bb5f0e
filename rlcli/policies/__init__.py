"""Policies: select actions from the outputs of a network.

Belongs here: exploration and exploitation; the part `policy`.
May import: distributions, and the ground.

The first positional parameter of a factory names the policy's input, which an updater
offers: `values` (one per action), `distribution` (a family and its parameters),
`action` (the action itself), or `model` (a transition model). `build` itself offers
`observation`, the observation space, and `gamma`, the tracer's discount factor.
"""

from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax
from jaxtyping import Float, Int

from rlcli.distributions import Distribution
from rlcli.types import Array, ArrayTree, Inspection, Network, Policy


class ValuesOffer(NamedTuple):
    """Action values: `network` returns `[..., actions]`."""

    network: Network


class DistributionOffer(NamedTuple):
    """A distribution over actions: `network` returns its parameters."""

    network: Network
    distribution: Distribution


class ActionOffer(NamedTuple):
    """A continuous action: `network` returns it, `[..., *shape]` or flat, in a Box.

    `features`, a feed-forward network on the same parameters, returns the inputs of
    state-dependent noise, `[..., features]`. By default they are the observation.
    """

    network: Network
    features: Network | None = None


Offer = ValuesOffer | DistributionOffer | ActionOffer


class SearchState(NamedTuple):
    """A latent state of a model, with its policy logits and value."""

    hidden: ArrayTree  # `[*batch, ...]`: input of the next model step
    logits: Float[Array, "*batch A"]  # prior policy
    value: Float[Array, "*batch"]


class PlanningModel(NamedTuple):
    """A transition model for planning."""

    root: Callable[[ArrayTree, ArrayTree], SearchState]  # params, obs[B]
    # (params, hidden[B], action) -> the reward, the next state
    predict: Callable[
        [ArrayTree, ArrayTree, Int[Array, "B"]], tuple[Float[Array, "B"], SearchState]
    ]
    actions: gymnasium.spaces.Discrete


def single_step(network: Network) -> Callable[..., tuple[ArrayTree, ArrayTree]]:
    """Returns the network for one timestep, without the time axis.

    `(params, obs[B], carry, first[B]) -> outputs[B], carry`.
    """

    def outputs(params, obs, carry, first):
        inputs = jax.tree.map(lambda leaf: leaf[None], (obs, first))
        outputs_batch = network.apply(params, None, inputs[0], carry, inputs[1])
        return jax.tree.map(lambda leaf: leaf[0], outputs_batch)

    return outputs


def predict(
    network: Network, carry: Callable[[ArrayTree], ArrayTree] = lambda carry: carry
) -> Callable[..., ArrayTree]:
    """Returns the outputs of a network as a function of the arguments of a policy.

    `(acting, obs[B], state, first[B]) -> outputs[B]`; `carry` selects the network's own
    recurrent state from that of the policy.
    """
    outputs = single_step(network)
    return lambda acting, obs, state, first: outputs(
        acting, obs, carry(state[0]), first
    )[0]


def policy_from_outputs(
    offer: Offer,
    draw: Callable,
    explore: Callable,
    exploit: Callable,
    log_prob: Callable,
    family: Distribution | None = None,
    parameters: Callable[[ArrayTree], Array] = lambda outputs: outputs,
) -> Policy:
    """Builds a policy without a noise process from functions of the network outputs.

    `explore` and `exploit` are `(outputs[B, ...], noise) -> Decision`. `explore`
    samples from the distribution of `family` with `parameters(outputs)`, `[B, size]`.
    """
    outputs = single_step(offer.network)

    def act_with(select_action: Callable) -> Callable:
        def act(acting, obs, state, first, noise):
            carry, process = state
            values, carry = outputs(acting, obs, carry, first)
            return select_action(values, noise), (carry, process)

        return act

    def initial(batch: int) -> ArrayTree:
        return offer.network.initial(batch), ()

    predict_outputs = predict(offer.network)

    def distribution_parameters(*inputs):
        return parameters(predict_outputs(*inputs))

    return Policy(
        initial,
        draw,
        act_with(explore),
        act_with(exploit),
        log_prob,
        Inspection(
            parameters=distribution_parameters if family else None, family=family
        ),
    )
