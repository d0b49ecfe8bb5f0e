"""Heads that predict returns: their mean, or their distribution.

Each returns a prediction of `rlcli.networks.predictions`, `[N, K]`, or
`[N, actions, K]` with one prediction per action. They are the parts of kind `head`.
"""

from typing import Annotated, Any, Literal

import haiku as hk
import jax
import jax.numpy as jnp
from annotated_types import Ge, Le
from jaxtyping import Float

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.networks import fractions
from rlcli.networks.heads.layers import Head, readout
from rlcli.networks.predictions import (
    Categorical,
    Quantiles,
    Scalar,
    centre_prediction,
    mask_prediction,
)
from rlcli.networks.torsos import Torso
from rlcli.registry import register
from rlcli.types import Array, Count, Structural

# The use of a prediction: to learn, to bootstrap from, or to act.
Role = Literal["learn", "bootstrap", "act"]
_MAX_ATOMS = 2**16  # the support is a constant, computed before the program runs
Actions = tuple[int, ...]  # (n,), or () if predictions do not depend on actions


@register("head", "scalar")
def scalar_head(
    actions: Actions, role: Role, *, dueling: bool = False, noisy: bool = False
) -> Head:
    """The mean. A user-defined forward pass returns `[N, actions]`, or `[N]`."""

    def read(torso: Torso, features: Float[Array, "N F"]) -> Scalar:
        return Scalar(
            readout(torso, features, actions, 1, dueling=dueling, noisy=noisy)
        )

    return Head(read, actions, lambda array: Scalar(array[..., None]))


@register("head", "categorical")
def categorical_head(
    actions: Actions,
    role: Role,
    *,
    atoms: Annotated[int, Ge(2), Le(_MAX_ATOMS)] = 51,
    low: Structural = -10.0,
    high: Structural = 10.0,
    dueling: bool = False,
    noisy: bool = False,
) -> Head:
    """Categorical distribution (C51) of `atoms` values between `low` and `high`.

    (Bellemare et al., 2017, https://arxiv.org/abs/1707.06887). With a value transform,
    `low` and `high` are transformed values. A user-defined forward pass returns the
    logits, `[N, actions, atoms]`.
    """
    if not low < high:
        raise RlcliError(
            f"a categorical head has atoms from `low` {low:g} to `high` {high:g}",
            "`low` must be less than `high`",
        )
    support = jnp.linspace(low, high, atoms)

    def from_logits(logits: Float[Array, "*batch K"]) -> Categorical:
        return Categorical(logits, jnp.broadcast_to(support, logits.shape))

    def read(torso: Torso, features: Float[Array, "N F"]) -> Categorical:
        return from_logits(
            readout(torso, features, actions, atoms, dueling=dueling, noisy=noisy)
        )

    return Head(read, (*actions, atoms), from_logits)


@register("head", "quantile")
def quantile_head(
    actions: Actions,
    role: Role,
    *,
    quantiles: Count = 51,
    dueling: bool = False,
    noisy: bool = False,
) -> Head:
    """Quantile regression (QR-DQN): quantiles at the midpoints of equal fractions.

        τᵢ = (i + ½) / N,  i = 0 … N − 1

    (Dabney et al., 2018a, https://arxiv.org/abs/1710.10044). A user-defined forward
    pass returns the quantiles, `[N, actions, quantiles]`.
    """

    def from_values(values: Float[Array, "*batch K"]) -> Quantiles:
        midpoints = fractions.quantiles(1, quantiles)[0]
        return Quantiles(values, jnp.broadcast_to(midpoints, values.shape))

    def read(torso: Torso, features: Float[Array, "N F"]) -> Quantiles:
        return from_values(
            readout(torso, features, actions, quantiles, dueling=dueling, noisy=noisy)
        )

    return Head(read, (*actions, quantiles), from_values)


@register("head", "implicit_quantile")
def implicit_quantile_head(
    actions: Actions,
    role: Role,
    *,
    samples: Count = 64,
    target_samples: Count = 64,
    policy_samples: Count = 32,
    cosines: Count = 64,
    hidden: Annotated[int, Ge(0)] = 0,
    dueling: bool = False,
    noisy: bool = False,
) -> Head:
    """Implicit quantile network (IQN): quantiles at randomly sampled fractions τ.

        z_τ(s, ·) = f(ψ(s) ⊙ φ(τ)),  φ(τ) = relu(Σ cos(π i τ) wᵢ + b),  0 ≤ i < cosines

    (Dabney et al., 2018b, https://arxiv.org/abs/1806.06923). The loss uses `samples`
    fractions, targets use `target_samples`. The policy, and the selection of the action
    in a target, use `policy_samples` of their own. In evaluation the fractions are
    midpoints of equal parts. b is initially 1, so that φ does not block ψ. f is linear;
    with `hidden` units it has a hidden layer, with layer norm and relu. The paper has
    one of 512 units.
    """
    counts = {"learn": samples, "bootstrap": target_samples, "act": policy_samples}
    count = counts[role]

    def read(torso: Torso, features: Float[Array, "N F"]) -> Quantiles:
        rows, entries = features.shape
        key = hk.maybe_next_rng_key()
        if key is not None and role == "act":
            # Actions are selected and evaluated with different fractions, also where
            # both have the same key, so that the layers have the same noise.
            key = jax.random.fold_in(key, 0)
        midpoints = fractions.quantiles(rows, count)
        taus = midpoints if key is None else jax.random.uniform(key, (rows, count))
        embed = hk.Linear(entries, b_init=jnp.ones, name="fractions")
        gate = jax.nn.relu(embed(fractions.quantile_cos_embedding(taus, cosines)))
        product = features[:, None, :] * gate  # [N, count, F]
        if hidden:
            layer = hk.Linear(hidden, name="hidden")(product)
            product = jax.nn.relu(hk.LayerNorm(-1, True, True)(layer))
        values = readout(torso, product, actions, 1, dueling=dueling, noisy=noisy)
        values = jnp.moveaxis(values[..., 0], 1, -1)  # [N, *actions, count]
        padding = (1,) * len(actions)
        taus = taus.reshape((rows, *padding, count))
        return Quantiles(values, jnp.broadcast_to(taus, values.shape))

    return Head(read, (), None)


def return_head(
    actions: Actions = (), role: Role = "learn", *, name: str = "scalar", **options: Any
) -> Head:
    """Returns the return head with a name."""
    offers = {"actions": actions, "role": role}
    head = registry.call_factory(registry.find("head", name).factory, offers, options)
    return head._replace(
        actions=actions,
        mask=mask_prediction,
        centre=centre_prediction if options.get("dueling") else None,
        predicts_returns=True,
    )
