"""Heads that predict returns: their mean, or their distribution.

Each gives a record of `rlcli.networks.predictions`, `[N, K]`, or `[N, actions, K]`
where actions are told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

import haiku as hk
import jax
import jax.numpy as jnp
from annotated_types import Ge, Le

from rlcli.errors import RlcliError
from rlcli.networks import fractions
from rlcli.networks.heads.head import Head
from rlcli.networks.heads.layers import readout
from rlcli.networks.predictions import Categorical, Quantiles, Scalar, mask_prediction
from rlcli.networks.torsos import Torso
from rlcli.types import Array, Count, Structural

# What a prediction is for: to be moved, to be bootstrapped from, or to act upon.
Role = Literal["learn", "bootstrap", "act"]
_MOST_ATOMS = 2**16  # the support is a constant: computed before any program runs
Actions = tuple[int, ...]  # (n,), or () where there are none to tell apart


def scalar_head(
    actions: Actions, role: Role, *, dueling: bool = False, noisy: bool = False
) -> Head:
    """The mean. An own forward pass gives `[N, actions]`, or `[N]`."""
    del role

    def read(torso: Torso, features: Array) -> Scalar:
        return Scalar(
            readout(torso, features, actions, 1, dueling=dueling, noisy=noisy)
        )

    return Head(read, actions, lambda array: Scalar(array[..., None]))


def categorical_head(
    actions: Actions,
    role: Role,
    *,
    atoms: Annotated[int, Ge(2), Le(_MOST_ATOMS)] = 51,
    low: Structural = -10.0,
    high: Structural = 10.0,
    dueling: bool = False,
    noisy: bool = False,
) -> Head:
    """How likely each of so many atoms between `low` and `high` is.

    C51 (Bellemare et al., 2017, https://arxiv.org/abs/1707.06887). With a value
    transform `low` and `high` are on its scale. An own forward pass gives the logits,
    `[N, actions, atoms]`.
    """
    del role
    if not low < high:
        raise RlcliError(
            f"a categorical head has atoms from `low` {low:g} to `high` {high:g}",
            "`low` has to be less than `high`",
        )
    support = jnp.linspace(low, high, atoms)

    def from_logits(logits: Array) -> Categorical:
        return Categorical(logits, jnp.broadcast_to(support, logits.shape))

    def read(torso: Torso, features: Array) -> Categorical:
        return from_logits(
            readout(torso, features, actions, atoms, dueling=dueling, noisy=noisy)
        )

    return Head(read, (*actions, atoms), from_logits)


def quantile_head(
    actions: Actions,
    role: Role,
    *,
    quantiles: Count = 51,
    dueling: bool = False,
    noisy: bool = False,
) -> Head:
    """So many quantiles, at the mid-points of equal shares.

        τᵢ = (i + ½) / N,  i = 0 … N − 1

    QR-DQN (Dabney et al., 2018a, https://arxiv.org/abs/1710.10044). An own forward pass
    gives them as `[N, actions, quantiles]`.
    """
    del role

    def from_values(values: Array) -> Quantiles:
        middles = fractions.quantiles(1, quantiles)[0]
        return Quantiles(values, jnp.broadcast_to(middles, values.shape))

    def read(torso: Torso, features: Array) -> Quantiles:
        return from_values(
            readout(torso, features, actions, quantiles, dueling=dueling, noisy=noisy)
        )

    return Head(read, (*actions, quantiles), from_values)


def implicit_quantile_head(
    actions: Actions,
    role: Role,
    *,
    samples: Count = 64,
    target_samples: Count = 64,
    policy_samples: Count = 32,
    cosines: Count = 64,
    dueling: bool = False,
    noisy: bool = False,
) -> Head:
    """The quantile at any fraction τ, asked at random ones.

        z_τ(s, ·) = f(ψ(s) ⊙ φ(τ)),  φ(τ) = relu(Σ cos(π i τ) wᵢ + b),  0 ≤ i < cosines

    IQN (Dabney et al., 2018b, https://arxiv.org/abs/1806.06923): so many `samples` are
    learnt, `target_samples` bootstrapped from, `policy_samples` acted upon. Without a
    key the fractions are mid-points of equal shares. b begins as 1: ψ is let through.
    """
    counts = {"learn": samples, "bootstrap": target_samples, "act": policy_samples}
    count = counts[role]

    def read(torso: Torso, features: Array) -> Quantiles:
        rows, entries = features.shape
        key = hk.maybe_next_rng_key()
        middles = fractions.quantiles(rows, count)
        fractions_asked = (
            middles if key is None else fractions.quantiles_uniform(key, rows, count)
        )
        embed = hk.Linear(entries, b_init=jnp.ones, name="fractions")
        gate = jax.nn.relu(
            embed(fractions.quantile_cos_embedding(fractions_asked, cosines))
        )
        product = features[:, None, :] * gate  # [N, count, F]
        values = readout(torso, product, actions, 1, dueling=dueling, noisy=noisy)
        values = jnp.moveaxis(values[..., 0], 1, -1)  # [N, *actions, count]
        padding = (1,) * len(actions)
        spread = fractions_asked.reshape((rows, *padding, count))
        return Quantiles(values, jnp.broadcast_to(spread, values.shape))

    return Head(read, (), None)


RETURN_HEADS: Mapping[str, Callable[..., Head]] = MappingProxyType(
    {
        "scalar": scalar_head,
        "categorical": categorical_head,
        "quantile": quantile_head,
        "implicit_quantile": implicit_quantile_head,
    }
)


def return_head(
    actions: Actions = (), role: Role = "learn", *, name: str = "scalar", **options: Any
) -> Head:
    """The head of that name, of a function that predicts returns."""
    head = RETURN_HEADS[name](actions, role, **options)
    return head._replace(actions=actions, mask=mask_prediction)
