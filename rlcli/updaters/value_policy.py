"""Value policy: the recipe's policy on action values, with noise only in `explore`."""

from collections.abc import Callable

import gymnasium
import jax
from jaxtyping import Float

from rlcli.distributions import Distribution
from rlcli.policies import DistributionOffer, Offer, ValuesOffer, predict
from rlcli.types import Array, ArrayTree, Key, Network, Policy
from rlcli.updaters import Policies

# Separates the noise of the network from the policy's random numbers, which fold in 0,
# 1, …
_NOISE_STREAM = 2**31


def value_policy(
    network: Network,
    policies: Policies,
    space: gymnasium.spaces.Discrete,
    family: Distribution | None = None,
) -> Policy:
    """The recipe's policy on the action values of a network, `[T, B, A]`.

    Only `explore` passes a key to the network. Each environment draws its own noise
    (Fortunato et al., 2018, https://arxiv.org/abs/1706.10295: each actor), so that they
    explore differently. With a `family` of distributions, policies may sample actions
    from it, with the action values as its parameters.
    """
    inner_network = Network(network.init, _per_environment(network), network.initial)
    offers: dict[str, Offer] = {"values": ValuesOffer(inner_network)}
    if family is not None:
        offers["distribution"] = DistributionOffer(inner_network, family)
    inner = policies(**offers, space=space)

    def draw(key: Key, batch: int) -> tuple[ArrayTree, Key]:
        return inner.draw(key, batch), jax.random.fold_in(key, _NOISE_STREAM)

    def explore(params, obs, state, first, noise):
        return inner.explore((params, noise[1]), obs, state, first, noise[0])

    def exploit(params, obs, state, first, noise):
        return inner.exploit((params, None), obs, state, first, noise[0])

    def without_noise(function: Callable) -> Callable:
        return lambda params, *inputs: function((params, None), *inputs)

    return inner._replace(
        draw=draw,
        explore=explore,
        exploit=exploit,
        inspection=inner.inspection.map(without_noise)._replace(
            action_values=predict(network)
        ),
    )


def _per_environment(network: Network) -> Callable:
    """The network's `apply`, where the parameters are (parameters, key or None)."""

    def apply(acting, key, obs, carry, first):
        del key  # the policy passes none
        params, noise = acting
        batch = first.shape[1]
        if noise is None or batch == 1:
            return network.apply(params, noise, obs, carry, first)

        def values_of_one(noise: Key, *inputs: ArrayTree) -> Float[Array, "T A"]:
            obs, first, carry = inputs
            rows = jax.tree.map(lambda leaf: leaf[:, None], (obs, first))
            carry_row = jax.tree.map(lambda leaf: leaf[None], carry)
            return network.apply(params, noise, rows[0], carry_row, rows[1])[0][:, 0]

        keys = jax.random.split(noise, batch)
        values_of_each = jax.vmap(values_of_one, in_axes=(0, 1, 1, 0), out_axes=1)
        _, carries = network.apply(params, None, obs, carry, first)  # without noise
        return values_of_each(keys, obs, first, carry), carries

    return apply
