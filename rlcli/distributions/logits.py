"""Functions of logits, one row of n per distribution.

A logit of −∞ excludes its outcome: it contributes neither to expectations nor to
gradients.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Num

from rlcli.types import Array
from rlcli.xla import backend
from rlcli.xla.indexing import select_index


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


def kl(
    logits: Float[Array, "*rows n"], other: Float[Array, "*rows n"]
) -> Float[Array, "*rows"]:
    """Σ p (log p − log q)."""
    logs, other_logs = jax.nn.log_softmax(logits), jax.nn.log_softmax(other)
    is_possible = logs > -jnp.inf
    # Without the mask, −∞ − −∞ of excluded outcomes would make the gradient NaN.
    return expectation(logits, jnp.where(is_possible, logs - other_logs, 0))


def project_probabilities(points: Array, probability: Array, atoms: Array) -> Array:
    """Projects a distribution over `points` onto equally spaced `atoms`.

    Probabilities: `[..., n], [..., n], [..., m] -> [..., m]`. Mass between two atoms is
    distributed to both in proportion to proximity, which preserves the mean. Mass
    beyond the ends goes to the ends (Bellemare et al., 2017,
    https://arxiv.org/abs/1707.06887).
    """
    # On a CPU, a table of n × m weights takes six times as long as a scatter. On an
    # accelerator, a scatter adds in an undefined order, so results would vary.
    project = _scatter_to_atoms if backend.is_cpu() else _weigh_atoms
    return jnp.vectorize(project, signature="(n),(n),(m)->(m)")(
        points, probability, atoms
    )


def _scatter_to_atoms(
    points: Float[Array, "n"], probability: Float[Array, "n"], atoms: Float[Array, "m"]
) -> Float[Array, "m"]:
    """Adds the mass of each point to the atoms below and above it."""
    last = len(atoms) - 1
    gap = (atoms[last] - atoms[0]) / last
    position = jnp.clip((points - atoms[0]) / gap, 0, last)  # in atoms
    below = jnp.floor(position)
    upper = probability * (position - below)
    index = below.astype(jnp.int32)
    mass = jnp.zeros(last + 2).at[index].add(probability - upper)
    mass = mass.at[index + 1].add(upper)[: last + 1]
    return mass + 0 * jnp.sum(position)  # keeps a NaN, which the indices would hide


def _weigh_atoms(
    points: Float[Array, "n"], probability: Float[Array, "n"], atoms: Float[Array, "m"]
) -> Float[Array, "m"]:
    """As `_scatter_to_atoms`, with a table of the weights of atoms for each point."""
    gap = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    inside = jnp.clip(points, atoms[0], atoms[-1])
    distance = jnp.abs(inside - atoms[:, None]) / gap  # [m, n], in atoms
    return jnp.sum(jnp.maximum(1 - distance, 0) * probability, axis=-1)
