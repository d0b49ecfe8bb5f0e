"""Functions of logits `[..., n]`, one row per distribution.

A logit of −∞ excludes its outcome: it contributes neither to expectations nor to
gradients.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.libraries import import_rlax
from rlcli.types import Array
from rlcli.xla.indexing import select_index

_TINY = float(np.finfo(np.float32).tiny)


def log_prob(logits: Array, index: Array) -> Array:
    """The log-probability of one outcome in each row: `[...]`."""
    logs = jax.nn.log_softmax(logits)
    return select_index(logs, index)


def expectation(logits: Array, values: Array) -> Array:
    """Σ p · value over the possible outcomes: `[...]`."""
    p = jax.nn.softmax(logits)
    return jnp.sum(p * jnp.where(p > 0, values, 0), axis=-1)


def entropy(logits: Array) -> Array:
    """−Σ p log p, `[...]`."""
    return -expectation(logits, jax.nn.log_softmax(logits))


def cross_entropy(logits: Array, other: Array) -> Array:
    """−Σ p log q, `[...]`; infinite if q excludes an outcome that p does not."""
    return -expectation(logits, jax.nn.log_softmax(other))


def kl(logits: Array, other: Array) -> Array:
    """Σ p (log p − log q), `[...]`."""
    logs, other_logs = jax.nn.log_softmax(logits), jax.nn.log_softmax(other)
    possible = logs > -jnp.inf
    # Without it, −∞ − −∞ of excluded outcomes would make the gradient NaN.
    return expectation(logits, jnp.where(possible, logs - other_logs, 0))


def project(logits: Array, points: Array, atoms: Array) -> Array:
    """Projects a distribution over `points` `[..., n]` onto `atoms` `[m]`; logits.

    Mass between two atoms is distributed to both in proportion to proximity, which
    preserves the mean. Mass beyond the ends goes to the ends (Bellemare et al., 2017,
    https://arxiv.org/abs/1707.06887). No logit is −∞, so gradients stay finite.
    """
    p = project_probabilities(
        points, jax.nn.softmax(logits), jnp.asarray(atoms, jnp.float32)
    )
    return jnp.log(jnp.maximum(p, _TINY))


def project_probabilities(points: Array, probability: Array, atoms: Array) -> Array:
    """As `project`, for probabilities: `[..., n], [..., n], [..., m] -> [..., m]`."""
    project = import_rlax().categorical_l2_project
    return jnp.vectorize(project, signature="(n),(n),(m)->(m)")(
        points, probability, atoms
    )
