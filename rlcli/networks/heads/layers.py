"""Layers that heads read features with: dueling, noisy."""

from __future__ import annotations

from collections.abc import Callable

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.errors import RlcliError
from rlcli.networks.torsos import Torso
from rlcli.types import Array

NOISE_SCALE = 0.5  # σ₀ of Fortunato et al.


def readout(
    torso: Torso,
    features: Array,
    actions: tuple[int, ...],
    size: int,
    *,
    dueling: bool = False,
    noisy: bool = False,
) -> Array:
    """`size` numbers for each action, `[..., F] -> [..., *actions, size]`.

    `actions` is `(n,)`, or `()` where there are none to tell apart. Dueling: as a value
    and what each action adds to it, less the mean of that over actions.
    """
    if dueling and not actions:
        raise RlcliError(
            "a dueling head tells actions apart, and here it says one value",
            "leave `dueling` out",
        )

    def layer(rows: tuple[int, ...]) -> Array:
        linear_layer = _output_layer(torso, int(np.prod(rows, dtype=int)) * size, noisy)
        return linear_layer(features).reshape((*features.shape[:-1], *rows, size))

    if not dueling:
        return layer(actions)
    value, advantage = layer((1,)), layer(actions)
    return value + advantage - jnp.mean(advantage, axis=-2, keepdims=True)


def _output_layer(torso: Torso, size: int, noisy: bool) -> Callable[[Array], Array]:
    plain = torso.outputs(size, 1.0)
    if not noisy:
        return plain
    noise = NoisyLayer(size)
    return lambda features: plain(features) + noise(features)


class NoisyLayer(hk.Module):
    """What noise in the weights adds to a linear layer (Fortunato et al., 2018).

        y = Wx + b + (σ_W ⊙ ε_W) x + σ_b ⊙ ε_b
        ε_W = f(ε_out) f(ε_in)ᵀ,  ε_b = f(ε_out)

    Factorised Gaussian noise with f(x) = sign(x) √|x|, the same for the whole batch;
    σ is learnt from 0.5/√inputs on. Without a key there is none
    (https://arxiv.org/abs/1706.10295).
    """

    def __init__(self, size: int) -> None:
        """`size`: outputs."""
        super().__init__("noise")
        self.size = size

    def __call__(self, inputs: Array) -> Array:
        """`[..., inputs] -> [..., size]`: what is added."""
        entries = inputs.shape[-1]
        sigma = hk.initializers.Constant(NOISE_SCALE / np.sqrt(entries))
        weights = hk.get_parameter("w", (entries, self.size), init=sigma)
        shifts = hk.get_parameter("b", (self.size,), init=sigma)
        key = hk.maybe_next_rng_key()
        if key is None:
            return jnp.zeros((*inputs.shape[:-1], self.size))
        noise = jax.random.normal(key, (entries + self.size,))
        spread = jnp.sign(noise) * jnp.sqrt(jnp.abs(noise))
        input_noise, output_noise = spread[:entries], spread[entries:]
        return ((inputs * input_noise) @ weights + shifts) * output_noise
