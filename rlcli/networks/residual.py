"""Residual networks: torsos for images and for vectors."""

from typing import Annotated

import haiku as hk
import jax.numpy as jnp
from annotated_types import Ge, Le

from rlcli.networks.images import Convolution, concatenate_features
from rlcli.networks.inputs import image_reader
from rlcli.networks.torsos import (
    Activation,
    Init,
    Torso,
    activation_function,
    output_layer,
    weight_initializer,
)
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Count


@register("network")
def residual(
    *,
    width: Count = 64,
    blocks: Annotated[int, Ge(1), Le(1_000)] = 2,  # each is compiled separately
    expansion: Count = 4,
    channels: list[Count] = [16, 32, 32],  # noqa: B006 - never mutated
    activation: Activation = "relu",
    init: Init = "fan_in",
) -> Torso:
    """Residual network (SimBa), with an IMPALA network for images.

        x ← W₀ inputs
        x ← x + W₂ σ(W₁ norm(x)), `blocks` times
        features = norm(x)

    with `width` units, `expansion` times as many within a block. norm is layer
    normalization (Lee et al., 2025, https://arxiv.org/abs/2410.09754). Images `[H, W,
    C]` first pass one section per entry of `channels`: a 3 × 3 convolution, 3 × 3 max
    pooling with stride 2, and twice x + conv(σ(conv(σ(x)))), as in IMPALA (Espeholt et
    al., 2018, https://arxiv.org/abs/1802.01561).
    """
    activate = activation_function(activation)

    def norm(inputs: Array) -> Array:
        return hk.LayerNorm(-1, True, True)(inputs)

    def layer(size: int, inputs: Array) -> Array:
        return hk.Linear(size, w_init=weight_initializer(init))(inputs)

    def convolve(image: Array) -> Array:
        for size in channels:
            image = Convolution(size, 3, padding="SAME", init=init)(image)
            image = hk.max_pool(jnp.asarray(image), (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
            for _ in range(2):
                block = image
                for _ in range(2):
                    block = activate(block)
                    block = Convolution(size, 3, padding="SAME", init=init)(block)
                image = image + block
        return activate(image)

    def features(inputs: ArrayTree) -> Array:
        x = layer(width, concatenate_features(convolve, inputs))
        for _ in range(blocks):
            x = x + layer(width, activate(layer(expansion * width, norm(x))))
        return norm(x)

    return Torso(features, output_layer(init), image_reader)
