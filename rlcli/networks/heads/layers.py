"""Heads: their type, and their output layers: linear, dueling and noisy."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from rlcli.errors import RlcliError
from rlcli.networks.torsos import Torso
from rlcli.types import Array, ArrayTree
from rlcli.xla.fusion_barrier import materialize


class Head(NamedTuple):
    """`read` computes outputs from features; `shape` is the shape of one output.

    The keyword-only parameters of a head's factory are the options of `head:`.
    """

    read: Callable[[Torso, Float[Array, "N F"]], ArrayTree]
    shape: tuple[int, ...]
    # Converts an array `[N, *shape]`, from a user-defined forward pass, to the type
    # that `read` returns. None: user-defined forward passes are not supported.
    from_array: Callable[[Array], ArrayTree] | None = lambda array: array
    actions: tuple[int, ...] = ()  # (n,) if there is an output for each action
    # (outputs of `read`, mask of legal actions) -> masked outputs. None: the outputs do
    # not depend on actions.
    mask: Callable[[ArrayTree, Bool[Array, "..."]], ArrayTree] | None = None
    # Where there is a mask, applied before it to the outputs of `read`, with the same
    # arguments: the mean advantage of a dueling head is that of the legal actions.
    centre: Callable[[ArrayTree, Bool[Array, "..."]], ArrayTree] | None = None
    # Whether it predicts returns: such functions get a key where they may use noise.
    predicts_returns: bool = False


NOISE_SCALE = 0.5  # σ₀ of Fortunato et al.


def readout(
    torso: Torso,
    features: Float[Array, "*batch F"],
    actions: tuple[int, ...],
    size: int,
    *,
    dueling: bool = False,
    noisy: bool = False,
) -> Float[Array, "..."]:
    """`size` outputs for each action, `[*batch, *actions, size]`.

    `actions` is `(n,)`, or `()` for outputs that do not depend on actions. Dueling: the
    sum of a value and the advantage of each action, minus the mean advantage, which
    `Head.centre` replaces by that of the legal actions if there is a mask.
    """
    if dueling and not actions:
        raise RlcliError(
            "a dueling head requires one output per action, but this head has one "
            "value",
            "remove `dueling`",
        )

    def layer(rows: tuple[int, ...]) -> Float[Array, "..."]:
        linear_layer = _output_layer(torso, int(np.prod(rows, dtype=int)) * size, noisy)
        return linear_layer(features).reshape((*features.shape[:-1], *rows, size))

    if not dueling:
        return layer(actions)
    value, advantage = layer((1,)), layer(actions)
    return value + advantage - jnp.mean(advantage, axis=-2, keepdims=True)


def _output_layer(torso: Torso, size: int, noisy: bool) -> Callable[..., Array]:
    plain = torso.outputs(size, 1.0)
    if not noisy:
        return plain
    noise = NoisyLayer(size)

    def layer(features: Float[Array, "*batch F"]) -> Float[Array, "*batch outputs"]:
        if math.prod(features.shape[:-1]) == 1:
            return plain(features) + noise(features)
        # One product with the noisy weights takes about half the time of two. A single
        # row often has noise of its own: it would need a matrix of weights of its own.
        weights, shifts = noise.sample(features.shape[-1])

        def add_noise(get: Callable, value: Any, context: Any) -> Any:
            return get(value + weights if context.name == "w" else value)

        with hk.custom_getter(add_noise):
            return plain(features) + shifts

    return layer


class NoisyLayer(hk.Module):
    """The noise of a noisy linear layer (Fortunato et al., 2018).

        y = Wx + b + (σ_W ⊙ ε_W) x + σ_b ⊙ ε_b
        ε_W = f(ε_out) f(ε_in)ᵀ,  ε_b = f(ε_out)

    Factorised Gaussian noise with f(x) = sign(x) √|x|, the same for the whole batch;
    σ is learned and starts at 0.5/√inputs. Without a key there is no noise
    (Fortunato et al., 2018, https://arxiv.org/abs/1706.10295).
    """

    def __init__(self, size: int) -> None:
        """`size` is the number of outputs."""
        super().__init__("noise")
        self.size = size

    def __call__(
        self, inputs: Float[Array, "*batch inputs"]
    ) -> Float[Array, "*batch {self.size}"]:
        """The noise to add to the outputs of the layer, without a matrix of noise."""
        weights, shifts, noise = self._draw(inputs.shape[-1])
        if noise is None:
            return jnp.zeros((*inputs.shape[:-1], self.size))
        input_noise, output_noise = noise
        return ((inputs * input_noise) @ weights + shifts) * output_noise

    def sample(
        self, entries: int
    ) -> tuple[Float[Array, "{entries} {self.size}"], Float[Array, "{self.size}"]]:
        """The noise to add to the weights for `entries` inputs, and to the biases."""
        weights, shifts, noise = self._draw(entries)
        if noise is None:
            return jnp.zeros_like(weights), jnp.zeros_like(shifts)
        input_noise, output_noise = noise
        return weights * input_noise[:, None] * output_noise, shifts * output_noise

    def _draw(self, entries: int) -> tuple[Array, Array, tuple[Array, Array] | None]:
        """σ_W, σ_b, and f(ε_in) and f(ε_out) if there is a key."""
        sigma = hk.initializers.Constant(NOISE_SCALE / np.sqrt(entries))
        weights = hk.get_parameter("w", (entries, self.size), init=sigma)
        shifts = hk.get_parameter("b", (self.size,), init=sigma)
        key = hk.maybe_next_rng_key()
        if key is None:
            return weights, shifts, None
        noise = jax.random.normal(key, (entries + self.size,))
        # Without the barrier, XLA repeats the draws for each weight's gradient.
        spread = materialize(jnp.sign(noise) * jnp.sqrt(jnp.abs(noise)))
        return weights, shifts, (spread[:entries], spread[entries:])
