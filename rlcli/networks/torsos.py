"""Torsos: from an observation, as a flat vector, to features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.registry import register
from rlcli.types import Array, Count, Structural

Activation = Literal["relu", "tanh", "elu", "gelu", "silu"]


class Torso(NamedTuple):
    """`features` is a Haiku function `[N, inputs] -> [N, features]`.

    `outputs(size, scale)` makes the Haiku layer that a head reads the features with;
    `scale` says how large outputs should be at first (1 where it does not matter).
    """

    features: Callable[[Array], Array]
    outputs: Callable[[int, float], Callable[[Array], Array]]


def _zeros(size: int, scale: float) -> hk.Linear:
    del scale  # nothing is known yet, whatever the scale
    return hk.Linear(size, w_init=jnp.zeros)


@register("network")
def table(*, initial: Structural = 0.0) -> Torso:
    """One number per observation and output, all alike at first.

    It is a table where observations are one-hot: Discrete ones are made so. What an
    `initial` above all returns promises has to be disproved, action by action: that
    explores (Brafman and Tennenholtz, 2002,
    https://www.jmlr.org/papers/v3/brafman02a.html).
    """

    def outputs(size: int, scale: float) -> hk.Linear:
        del scale
        return hk.Linear(size, False, hk.initializers.Constant(initial))

    return Torso(lambda inputs: inputs, outputs)


@register("network")
def linear() -> Torso:
    """A linear function of the observation, zero at first."""
    return Torso(lambda inputs: inputs, _zeros)


@register("network")
def mlp(
    *,
    layers: list[Count] = [64, 64],  # noqa: B006 - a default that is never mutated
    activation: Activation = "relu",
    layer_norm: bool = False,
    init: Literal["fan_in", "orthogonal"] = "fan_in",
) -> Torso:
    """A multi-layer perceptron.

    `fan_in` draws weights as Haiku does, truncated normal with 1/√inputs; `orthogonal`
    as is usual for policy gradients, with gain √2 for relu (Saxe et al., 2013,
    https://arxiv.org/abs/1312.6120), and scales the head's layer.
    """
    activate = getattr(jnp if activation == "tanh" else jax.nn, activation)
    gain = np.sqrt(2.0)

    def weights(scale: float) -> hk.initializers.Initializer | None:
        return hk.initializers.Orthogonal(scale) if init == "orthogonal" else None

    def features(inputs: Array) -> Array:
        for size in layers:
            inputs = hk.Linear(size, w_init=weights(gain))(inputs)
            if layer_norm:
                inputs = hk.LayerNorm(-1, True, True)(inputs)
            inputs = activate(inputs)
        return inputs

    def outputs(size: int, scale: float) -> hk.Linear:
        return hk.Linear(size, w_init=weights(scale))

    return Torso(features, outputs)
