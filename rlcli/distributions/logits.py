"""Functions of logits, one row of n per distribution.

A logit of −∞ excludes its outcome: it contributes neither to expectations nor to
gradients.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Num

from rlcli.libraries import import_rlax
from rlcli.types import Array
from rlcli.xla.indexing import select_index

_TINY = float(np.finfo(np.float32).tiny)


def log_prob(
    logits: Float[Array, "*rows n"], index: Int[Array, "..."]
) -> Float[Array, "*rows"]:
    """The log-probability of one outcome in each row; `index` broadcasts."""
    logs = jax.nn.log_softmax(logits)
    return select_index(logs, index)


def expectation(
    logits: Float[Array, "*rows n"], values: Num[Array, "..."]
) -> Float[Array, "*rows"]:
    """Σ p · value over the possible outcomes; `values` broadcast."""
    p = jax.nn.softmax(logits)
    return jnp.sum(p * jnp.where(p > 0, values, 0), axis=-1)


def entropy(logits: Float[Array, "*rows n"]) -> Float[Array, "*rows"]:
    """−Σ p log p."""
    return -expectation(logits, jax.nn.log_softmax(logits))


def cross_entropy(
    logits: Float[Array, "*rows n"], other: Float[Array, "*rows n"]
) -> Float[Array, "*rows"]:
    """−Σ p log q; infinite if q excludes an outcome that p does not."""
    return -expectation(logits, jax.nn.log_softmax(other))


def kl(
    logits: Float[Array, "*rows n"], other: Float[Array, "*rows n"]
) -> Float[Array, "*rows"]:
    """Σ p (log p − log q)."""
    logs, other_logs = jax.nn.log_softmax(logits), jax.nn.log_softmax(other)
    possible = logs > -jnp.inf
    # Without it, −∞ − −∞ of excluded outcomes would make the gradient NaN.
    return expectation(logits, jnp.where(possible, logs - other_logs, 0))


def project(
    logits: Float[Array, "*rows n"],
    points: Float[Array, "... n"],
    atoms: Float[Array, "... m"],
) -> Float[Array, "*rows m"]:
    """Projects a distribution over `points` onto `atoms`, and returns logits.

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
