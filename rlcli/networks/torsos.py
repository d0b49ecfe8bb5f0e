"""Torsos: from an observation to features. Those for images are in `images`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.networks.inputs import flat_reader
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Count, Structural

Activation = Literal["relu", "tanh", "elu", "gelu", "silu"]
Init = Literal["fan_in", "orthogonal"]
GAIN = float(np.sqrt(2.0))  # keeps the size of what goes through relu


class Torso(NamedTuple):
    """`features` is a Haiku function `[N, inputs] -> [N, features]`.

    `outputs(size, scale)` makes the Haiku layer that a head reads the features with;
    `scale` says how large outputs should be at first (1 where it does not matter).
    `input_reader(space)` makes inputs of observations `[N, ...]`: flat vectors, unless
    it says otherwise. What others have made, such as features of a shared torso joined
    with an action, comes as a flat vector all the same.
    """

    features: Callable[[Any], Array]
    outputs: Callable[[int, float], Callable[[Array], Array]]
    input_reader: Callable[[gymnasium.Space], Callable[[ArrayTree], ArrayTree]] = (
        flat_reader
    )


def _zero_linear(size: int, scale: float) -> hk.Linear:
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
    return Torso(lambda inputs: inputs, _zero_linear)


@register("network")
def mlp(
    *,
    layers: list[Count] = [64, 64],  # noqa: B006 - a default that is never mutated
    activation: Activation = "relu",
    layer_norm: bool = False,
    init: Init = "fan_in",
) -> Torso:
    """A multi-layer perceptron.

    `fan_in` draws weights as Haiku does, truncated normal with 1/√inputs; `orthogonal`
    as is usual for policy gradients, with gain √2 for relu (Saxe et al., 2013,
    https://arxiv.org/abs/1312.6120), and scales the head's layer.
    """
    hidden = dense_layers(layers, activation, layer_norm, init)
    return Torso(hidden, output_layer(init))


def dense_layers(
    layers: Sequence[int], activation: Activation, layer_norm: bool, init: Init
) -> Callable[[Array], Array]:
    """Layers of so many units, each after the other: a Haiku function."""
    activate = activation_function(activation)

    def features(inputs: Array) -> Array:
        for size in layers:
            inputs = hk.Linear(size, w_init=weight_initializer(init))(inputs)
            if layer_norm:
                inputs = hk.LayerNorm(-1, True, True)(inputs)
            inputs = activate(inputs)
        return inputs

    return features


def output_layer(init: Init) -> Callable[[int, float], hk.Linear]:
    """The `outputs` of a torso whose layers begin like that."""
    return lambda size, scale: hk.Linear(size, w_init=weight_initializer(init, scale))


def weight_initializer(
    init: Init, scale: float = GAIN
) -> hk.initializers.Initializer | None:
    """How weights begin; None as Haiku has them, whatever the scale."""
    return hk.initializers.Orthogonal(scale) if init == "orthogonal" else None


def activation_function(name: Activation) -> Callable[[Array], Array]:
    """The function of that name."""
    return getattr(jnp if name == "tanh" else jax.nn, name)
