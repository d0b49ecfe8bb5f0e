"""Torsos for images, and residual networks, also for vectors.

If an observation has several members, the convolutions read each image. Other members
are flattened and concatenated with the features of the images.
"""

import itertools
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Le

from rlcli.errors import RlcliError
from rlcli.networks.inputs import image_reader, image_shapes
from rlcli.networks.torsos import (
    GAIN,
    Activation,
    Init,
    Torso,
    activation_function,
    dense_layers,
    output_layer,
    weight_initializer,
)
from rlcli.registry import register
from rlcli.spaces import describe
from rlcli.types import Array, ArrayTree, Count
from rlcli.xla import backend


class _Preset(NamedTuple):
    """Published layer sizes."""

    channels: list[int]
    kernels: list[int]
    strides: list[int]
    layers: list[int]


_PRESETS = {
    "minatar": _Preset([16], [3], [1], [128]),
    "atari": _Preset([32, 64, 64], [8, 4, 3], [4, 2, 1], [512]),
}


@register("network")
def cnn(
    *,
    preset: Literal["minatar", "atari"] = "minatar",
    channels: list[Count] | None = None,
    kernels: list[Count] | None = None,
    strides: list[Count] | None = None,
    layers: list[Count] | None = None,
    activation: Activation = "relu",
    layer_norm: bool = False,
    init: Init = "fan_in",
) -> Torso:
    """Convolutional network (CNN) for images `[H, W, C]`, with dense `layers`.

    Each convolution has `channels` outputs, a square kernel and a stride, and no
    padding. `minatar` is the network of Young and Tian (2019,
    https://arxiv.org/abs/1903.03176): 16 channels of 3 × 3, a layer of 128. `atari` is
    that of Mnih et al. (2015, https://doi.org/10.1038/nature14236): 32 of 8 × 8 by 4,
    64 of 4 × 4 by 2, 64 of 3 × 3, a layer of 512. Options override the preset. uint8
    images are scaled to numbers from 0 to 1.
    """
    published = _PRESETS[preset]
    shape = _Preset(
        channels=published.channels if channels is None else channels,
        kernels=published.kernels if kernels is None else kernels,
        strides=published.strides if strides is None else strides,
        layers=published.layers if layers is None else layers,
    )
    if not len(shape.channels) == len(shape.kernels) == len(shape.strides):
        raise RlcliError(
            f"network `cnn` has {len(shape.channels)} channels, {len(shape.kernels)} "
            f"kernels and {len(shape.strides)} strides",
            "give one of each per convolution",
        )
    activate = activation_function(activation)
    hidden = dense_layers(shape.layers, activation, layer_norm, init)
    convolutions = list(zip(shape.channels, shape.kernels, shape.strides, strict=True))

    def convolve(image: Array) -> Array:
        for size, kernel, stride in convolutions:
            image = Convolution(size, kernel, stride, init=init)(image)
            if layer_norm:
                image = hk.LayerNorm(-1, True, True)(image)
            image = activate(image)
        return image

    def reads(space: gymnasium.Space) -> Callable[[ArrayTree], list[Array]]:
        _check_images(space, convolutions)
        return image_reader(space)

    def features(inputs: ArrayTree) -> Array:
        return hidden(concatenate_features(convolve, inputs))

    return Torso(features, output_layer(init), reads)


class Convolution(hk.Module):
    """A convolution with a square kernel, `[N, H, W, C] -> [N, H′, W′, size]`.

        y[i, j] = Σ W[a, b] · x[i s + a, j s + b] + bias

    with stride s. On a CPU, XLA needs minutes to compile the gradient of a strided
    convolution (231 s for the Atari network, against half a second this way), and three
    times as long to run it. So a space-to-depth transform turns s × s pixels into
    channels, and the stride is 1. Even then a gradient inside a loop takes 4 times as
    long for the MinAtar network, and 37 times for the Atari network, as that of a
    matrix product, which therefore computes the convolution on a CPU.
    """

    def __init__(
        self,
        size: int,
        kernel: int,
        stride: int = 1,
        padding: Literal["VALID", "SAME"] = "VALID",
        init: Init = "fan_in",
    ) -> None:
        """`SAME` padding requires a stride of 1."""
        super().__init__("convolution")
        if padding == "SAME" and stride > 1:
            raise ValueError(f"expected a stride of 1 with padding, got {stride}")
        self.size, self.kernel, self.stride = size, kernel, stride
        self.padding: str = padding
        self.init: Init = init

    def __call__(self, image: Array) -> Array:
        """`[N, H, W, C]`, float32."""
        entries = self.kernel**2 * image.shape[-1]
        fan_in = hk.initializers.TruncatedNormal(1 / np.sqrt(entries))
        shape = (self.kernel, self.kernel, image.shape[-1], self.size)
        begin = weight_initializer(self.init, GAIN) or fan_in
        weights = hk.get_parameter("w", shape, init=begin)
        shift = hk.get_parameter("b", (self.size,), init=jnp.zeros)
        if self.stride > 1:
            image, weights = _space_to_depth(image, weights, self.stride)
        if backend.is_cpu():
            return conv_as_matmul(image, weights, self.padding) + shift
        layout = ("NHWC", "HWIO", "NHWC")
        outputs = jax.lax.conv_general_dilated(
            jnp.asarray(image),
            jnp.asarray(weights),
            (1, 1),
            self.padding,
            dimension_numbers=layout,
        )
        return outputs + shift


def _check_images(
    space: gymnasium.Space, convolutions: list[tuple[int, int, int]]
) -> None:
    """Raises an error for a space without images or with an image that is too small."""
    shapes = image_shapes(space)
    if not shapes:
        raise RlcliError(
            f"network `cnn` reads images, but {describe(space)} contains none",
            "an image is a Box of height, width and channels; `mlp` reads any space",
        )
    for height, width, _ in shapes:
        min_side = min(height, width)
        for _, kernel, stride in convolutions:
            if min_side < kernel:
                raise RlcliError(
                    f"network `cnn` has a kernel of {kernel} × {kernel} where "
                    f"{min_side} pixels are left of an image of {height} × {width}",
                    "choose smaller `kernels` or `strides`, or another `preset`",
                )
            min_side = (min_side - kernel) // stride + 1


def conv_as_matmul(image: Array, weights: Array, padding: str) -> Array:
    """A convolution with stride 1 as one matrix product of patches and weights."""
    kernel, *_, size = weights.shape
    if padding == "SAME":
        margins = ((kernel - 1) // 2, kernel // 2)
        image = jnp.pad(image, ((0, 0), margins, margins, (0, 0)))
    high, wide = (n - kernel + 1 for n in image.shape[1:3])
    offsets = itertools.product(range(kernel), repeat=2)
    patches = [image[:, i : i + high, j : j + wide] for i, j in offsets]
    return jnp.concatenate(patches, axis=-1) @ weights.reshape((-1, size))


def _space_to_depth(image: Array, weights: Array, stride: int) -> tuple[Array, Array]:
    """Image and weights whose convolution with stride 1 equals that with `stride`."""
    rows, height, width, depth = image.shape
    kernel, _, _, size = weights.shape
    cells = -(-kernel // stride)  # spanned by the kernel
    high, wide = ((n - kernel) // stride + cells for n in (height, width))
    bottom, right = (max(0, high * stride - height), max(0, wide * stride - width))
    image = jnp.pad(image, ((0, 0), (0, bottom), (0, right), (0, 0)))
    image = image[:, : high * stride, : wide * stride]
    image = image.reshape((rows, high, stride, wide, stride, depth))
    image = image.transpose((0, 1, 3, 2, 4, 5)).reshape((rows, high, wide, -1))
    extra = (0, cells * stride - kernel)
    weights = jnp.pad(weights, (extra, extra, (0, 0), (0, 0)))
    weights = weights.reshape((cells, stride, cells, stride, depth, size))
    weights = weights.transpose((0, 2, 1, 3, 4, 5)).reshape((cells, cells, -1, size))
    return image, weights


def concatenate_features(
    convolve: Callable[[Array], Array], inputs: ArrayTree
) -> Array:
    """Concatenates the features of images and the flat inputs."""
    parts = [
        leaf if leaf.ndim == 2 else convolve(leaf) for leaf in jax.tree.leaves(inputs)
    ]
    rows = [leaf.reshape((leaf.shape[0], -1)) for leaf in parts]
    return jnp.concatenate(rows, axis=-1)


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
