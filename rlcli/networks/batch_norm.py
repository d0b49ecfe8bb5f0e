"""Batch normalization: a layer with running statistics, which learning updates."""

import haiku as hk
import jax
import jax.numpy as jnp
from jaxtyping import Float

from rlcli.types import Array
from rlcli.xla.data_axis import mean_over_devices

# The constants of CrossQ's authors.
_MOMENTUM = 0.99
_EPSILON = 1e-3  # added to variances
_MAX_RATIO = 3.0  # of the two standard deviations
_MAX_SHIFT = 5.0  # of the two means, in running standard deviations
# The largest in a batch of N rows is √(N − 1); running statistics bound nothing.
_MAX_OUTPUT = 100.0
_WARMUP = 100_000  # batches that are normalized by their own statistics


class BatchRenorm(hk.Module):
    """Batch renormalization of features (Ioffe, 2017, https://arxiv.org/abs/1702.03275).

        r = clip(σ_B / σ, ⅓, 3)        d = clip((μ_B − μ) / σ, −5, 5)
        y = ((x − μ_B) / σ_B · r + d) · scale + offset

    μ_B and σ_B are those of the batch, μ and σ the running statistics, and r and d have
    no gradient. In the first 100 000 batches r = 1 and d = 0: batch normalization.
    Without `learns`, y is clip((x − μ) / σ, −100, 100) · scale + offset, and nothing is
    updated.

    With `train.data_parallel`, the batch is that of all devices.
    """

    def __init__(self, learns: bool) -> None:
        """`learns`: whether to use the statistics of the batch and update μ and σ."""
        super().__init__("batch_norm")
        self.learns = learns

    def __call__(self, inputs: Float[Array, "N F"]) -> Float[Array, "N F"]:
        """Normalizes a batch."""
        shape = inputs.shape[-1:]
        mean = hk.get_state("mean", shape, init=jnp.zeros)
        variance = hk.get_state("variance", shape, init=jnp.ones)
        count = hk.get_state("count", (), jnp.int32, init=jnp.zeros)
        scale = hk.get_parameter("scale", shape, init=jnp.ones)
        offset = hk.get_parameter("offset", shape, init=jnp.zeros)
        if not self.learns:
            normalized = (inputs - mean) * jax.lax.rsqrt(variance + _EPSILON)
            return jnp.clip(normalized, -_MAX_OUTPUT, _MAX_OUTPUT) * scale + offset
        batch_mean = mean_over_devices(jnp.mean(inputs, axis=0))
        centred = inputs - batch_mean
        batch_variance = mean_over_devices(jnp.mean(jnp.square(centred), axis=0))
        deviation = jnp.sqrt(batch_variance + _EPSILON)
        is_warm = count >= _WARMUP
        running_deviation = jnp.sqrt(variance + _EPSILON)
        ratio = jnp.clip(deviation / running_deviation, 1 / _MAX_RATIO, _MAX_RATIO)
        shift = (batch_mean - mean) / running_deviation
        shift = jnp.where(is_warm, jnp.clip(shift, -_MAX_SHIFT, _MAX_SHIFT), 0)
        ratio, shift = jax.lax.stop_gradient((jnp.where(is_warm, ratio, 1), shift))
        for name, old, new in (
            ("mean", mean, batch_mean),
            ("variance", variance, batch_variance),
        ):
            # No gradient: a running statistic is no parameter.
            new = jax.lax.stop_gradient(new)
            hk.set_state(name, _MOMENTUM * old + (1 - _MOMENTUM) * new)
        hk.set_state("count", jnp.minimum(count, _WARMUP - 1) + 1)
        return (centred / deviation * ratio + shift) * scale + offset
