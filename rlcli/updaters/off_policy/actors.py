"""Actors: policies that maximize action values, for objectives and backups.

In any action space, an actor returns M actions with their probabilities. Over Discrete
actions these are all actions. Otherwise it is one sampled action of probability one,
through which gradients pass.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from rlcli import spaces as space_functions
from rlcli.distributions import BoxFamily, Distribution
from rlcli.distributions.family import Event
from rlcli.distributions.squashed import box_bijector
from rlcli.networks.functions import learn_outputs
from rlcli.networks.heads import action_head, distribution_head
from rlcli.networks.predictions import Prediction
from rlcli.policies import ActionOffer, DistributionOffer, Offer, ValuesOffer
from rlcli.types import Array, ArrayTree, Key, Network, Params
from rlcli.updaters import Networks, Parts, default_distribution
from rlcli.updaters.critics import Critic


class ActionChoices(NamedTuple):
    """M actions of a policy in each of `[T, B]` states, with probabilities."""

    action: ArrayTree  # `[T, B, *shape]`: the one action (M = 1); None: all actions
    probability: Float[Array, "T B M"]
    log_prob: Float[Array, "T B M"]  # or a density; 0 if deterministic
    outputs: Float[Array, "T B size"]  # of the policy network
    # Updated, of the policy network (`Network.learn`).
    statistics: Mapping[str, ArrayTree] = {}


class Actor(NamedTuple):
    """A policy to improve; the recipe's policy acts on one of its offers."""

    network: Network
    # (outputs of the network, first, key) -> ActionChoices
    decide: Callable[[Array, Bool[Array, "T B"], Key], ActionChoices]
    offers: Mapping[str, Offer]
    family: Distribution | None = None  # of the outputs; None: deterministic
    # As `decide`, for bootstrap targets; None: the same choices.
    decide_target: Callable[..., ActionChoices] | None = None

    def choose(
        self, params: Params, obs: ArrayTree, first: Bool[Array, "T B"], key: Key
    ) -> ActionChoices:
        """Choices for the policy's objective.

        Networks with batch normalization use the statistics of the batch.
        """
        outputs, statistics = learn_outputs(self.network, params, None, obs, (), first)
        return self.decide(outputs, first, key)._replace(statistics=statistics)

    def choose_target(
        self, params: Params, obs: ArrayTree, first: Bool[Array, "T B"], key: Key
    ) -> ActionChoices:
        """Choices for bootstrap targets."""
        outputs, _ = self.network.apply(params, None, obs, (), first)
        return (self.decide_target or self.decide)(outputs, first, key)


def distribution_actor(
    updater: str,
    parts: Parts,
    *,
    box: BoxFamily,
    hint: str = "`ppo` and `a2c` support any action space",
) -> Actor:
    """A categorical actor over Discrete actions, or a stochastic one over a Box.

    Raises an error with `hint` for other action spaces.
    """
    spaces, networks, *_ = parts
    space = spaces.action
    family = default_distribution(space, updater, box=box)
    if isinstance(space, gymnasium.spaces.Discrete):
        return categorical_actor(networks, family)
    if family.differentiable is None:
        needed = f"`{updater}` needs a Discrete action space or a Box of floats"
        raise spaces.refuse_action(needed, hint)
    return stochastic_actor(networks, family)


def categorical_actor(networks: Networks, family: Distribution) -> Actor:
    """A categorical policy π(·|s) over Discrete actions.

    It returns all actions with their probabilities, so expectations and their gradients
    are exact.
    """
    logits = networks("policy", functools.partial(distribution_head, family))

    def decide(outputs, first, key):
        del key  # nothing is sampled
        log_prob = jax.nn.log_softmax(outputs)
        return ActionChoices(None, jnp.exp(log_prob), log_prob, outputs)

    offers = {
        "distribution": DistributionOffer(logits, family),
        "values": ValuesOffer(logits),
    }
    return Actor(logits, decide, offers, family)


def stochastic_actor(networks: Networks, family: Distribution) -> Actor:
    """A stochastic policy π(·|s) over continuous actions, with pathwise gradients."""
    network = networks("policy", functools.partial(distribution_head, family))
    sample = family.differentiable
    if sample is None:
        raise ValueError(
            f"expected a distribution with reparameterized samples, got `{family.name}`"
        )

    def decide(outputs, first, key):
        noise = jax.tree.map(
            lambda leaf: leaf.reshape((*first.shape, *leaf.shape[1:])),
            family.draw(key, first.size),
        )
        action, log_prob = sample(outputs, noise)
        ones = jnp.ones((*first.shape, 1))
        return ActionChoices(action, ones, log_prob[..., None], outputs)

    def mode(params, key, obs, carry, first):
        outputs, carry = network.apply(params, key, obs, carry, first)
        return family.mode(outputs), carry

    offers = {
        "distribution": DistributionOffer(network, family),
        "action": ActionOffer(Network(network.init, mode, network.initial)),
    }
    return Actor(network, decide, offers, family)


def deterministic_actor(
    networks: Networks,
    space: gymnasium.spaces.Box,
    smoothing: Array | float,
    clip: Array | float,
) -> Actor:
    """A deterministic policy a = μ(s) squashed into the Box; noise in its target.

        a′ = clip(μ(s) + clip(σ ε, −c, c), low, high),  ε ~ N(0, 1)

    σ is `smoothing`, c `clip`.
    """
    event = Event(space.shape)
    low, high = (
        bound.astype(np.float32).ravel() for bound in space_functions.bounds(space)
    )
    squash = box_bijector(low, high)
    action_network = networks("policy", functools.partial(action_head, event.size))

    def bounded_action(params, key, obs, carry, first):
        outputs, carry = action_network.apply(params, key, obs, carry, first)
        return squash.forward(outputs), carry

    def decide(entries, first, key):
        del key  # deterministic
        zeros = jnp.zeros((*entries.shape[:-1], 1))
        return ActionChoices(
            event.unflatten(entries).astype(space_functions.dtype(space)),
            zeros + 1,
            zeros,
            entries,
        )

    def decide_target(mean, first, key):
        noise = smoothing * jax.random.normal(key, mean.shape)
        noisy_mean = mean + jnp.clip(noise, -clip, clip)
        return decide(jnp.clip(noisy_mean, low, high), first, key)

    acting = Network(action_network.init, bounded_action, action_network.initial)
    offers = {"action": ActionOffer(acting)}
    return Actor(acting, decide, offers, decide_target=decide_target)


def evaluate_choices(
    critic: Critic,
    role: str,
    params: Params,
    key: Key | None,
    obs: ArrayTree,
    choice: ActionChoices,
    first: Array,
) -> Prediction:
    """The critic's prediction for each of the actions, `[C, T, B, M, K]`."""
    if choice.action is None:
        return critic.predict_all_actions(role, params, key, obs, first)
    q = critic.predict_action(role, params, key, obs, choice.action, first)
    return jax.tree.map(lambda leaf: leaf[..., None, :], q)
