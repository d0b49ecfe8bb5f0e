"""Discretized Box: each entry is divided into bins of equal width."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from rlcli import spaces
from rlcli.distributions.choices import multi_discrete
from rlcli.distributions.family import (
    Distribution,
    Parameters,
    event_size,
    unflatten_event,
)
from rlcli.types import Array
from rlcli.xla.indexing import select_index
from rlcli.xla.numeric_limits import FLOAT32_TINY


def discretized_box(space: gymnasium.spaces.Box, bins: int = 11) -> Distribution:
    """Histogram over each entry of a bounded Box: one logit per bin.

        p(x) = Π p[bin of xᵢ] / (width of a bin)

    After Tang & Agrawal (2020, https://arxiv.org/abs/1901.10500), whose bins are
    points. Here x is uniform within a bin, so that samples reach the bounds and the
    density integrates to 1 over the Box. Sampled by inverting the cumulative
    distribution function. `mode` is the middle of the most likely bin. `affine` moves
    the middles and distributes their mass to the nearest two bins.
    """
    if not np.issubdtype(space.dtype, np.floating) or not space.is_bounded():
        raise TypeError(f"expected a Box of floats with bounds, got {space}")
    if bins < 2:
        raise ValueError(f"expected at least 2 bins, got {bins}")
    shape, dtype, count = space.shape, spaces.dtype(space), event_size(space.shape)
    bounds = [bound.astype(np.float64) for bound in spaces.bounds(space)]
    step = (bounds[1] - bounds[0]) / bins
    log_step = float(np.sum(np.log(step)))
    low, high, step = (bound.astype(np.float32) for bound in (*bounds, step))
    histogram = multi_discrete(np.full(shape, bins))  # over the indices of bins

    def point(index: Array) -> Array:
        """Maps a bin position to the Box; the middle of bin k is at k + ½."""
        return jnp.clip(low + step * index, low, high)

    def sample(parameters: Parameters, noise: Array) -> Array:
        p = jax.nn.softmax(parameters.reshape(*parameters.shape[:-1], count, bins))
        cdf = jnp.cumsum(p, axis=-1)
        x_cdf = noise * cdf[..., -1]  # the total is not exactly 1
        index = jnp.sum(cdf <= x_cdf[..., None], axis=-1)
        index = jnp.minimum(index, bins - 1)  # rounding may exceed the last bin
        bin_end_cdf, mass = (select_index(row, index) for row in (cdf, p))
        # The fraction of the bin that lies above x.
        above = jnp.clip((bin_end_cdf - x_cdf) / jnp.maximum(mass, FLOAT32_TINY), 0, 1)
        return point(unflatten_event(index + 1 - above, shape)).astype(dtype)

    def log_prob(parameters: Parameters, x: Array) -> Float[Array, "..."]:
        place = (jnp.asarray(x).astype(jnp.float32) - low) / step
        index = jnp.clip(place, 0, bins - 1).astype(jnp.int32)
        return histogram.log_prob(parameters, index) - log_step

    def affine(
        parameters: Parameters, scale: Array | float, shift: Array | float
    ) -> Parameters:
        middle = low + step / 2  # of the first bin
        shift = (shift + scale * middle - middle) / step
        return histogram.affine(parameters, scale, shift)

    return histogram._replace(
        name="discretized",
        draw=lambda key, batch: jax.random.uniform(key, (batch, count)),
        sample=sample,
        mode=lambda parameters: point(histogram.mode(parameters) + 0.5).astype(dtype),
        log_prob=log_prob,
        entropy=lambda parameters: histogram.entropy(parameters) + log_step,
        mean=lambda parameters: point(histogram.mean(parameters) + 0.5),
        cross_entropy=lambda parameters, other: (
            histogram.cross_entropy(parameters, other) + log_step
        ),
        affine=affine,
    )
