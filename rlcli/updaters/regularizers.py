"""Regularizers: what a policy is bent towards beside its objective, and how strongly.

With parameters θ of the policy, weight w, and means over the rows:

- `entropy`: adds −w H(π(·|s)) to the loss (Williams & Peng, 1991,
  https://doi.org/10.1080/09540099108946587);
- `kl` to `prior`: adds w KL(π(·|s) ‖ p), where p has all parameters zero: uniform over
  choices, the standard normal distribution over numbers;
- `kl` to `old`: adds w KL(π_old(·|s) ‖ π(·|s)), where π_old is the policy before this
  update (Schulman et al., 2017, https://arxiv.org/abs/1707.06347, section 4);
- `n_step_entropy`: adds to the return what later entropies are worth,

      Gₜ += w Σ_{k≥1} γᵏ λᵏ⁻¹ H(π(·|sₜ₊ₖ))

  up to the end of the episode or of the unroll: not the state at which the episode
  terminated, which nobody acts in, but the one at which it was cut short. With γ and λ
  those of the tracer `lambda_return` the values learnt are soft ones,
  v(s) = E Σ γᵏ (rₖ₊₁ + w γₖ₊₁ H(π(·|sₖ₊₁))) (Haarnoja et al., 2018,
  https://arxiv.org/abs/1801.01290). Rows have to be single steps: n = 1 of `n_step`
  goes with λ = 0. The entropy at s itself is no part of it: beside the values, add
  `entropy` with the same weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NotRequired, Required, TypedDict

import jax
import jax.numpy as jnp

from rlcli.distributions import Distribution
from rlcli.errors import RlcliError, suggest
from rlcli.types import Array, NonNegative, Probability

Regularizer = TypedDict(  # called, for `lambda` is a word of Python
    "Regularizer",
    {
        "name": Required[Literal["entropy", "kl", "n_step_entropy"]],
        "weight": Required[NonNegative],
        "to": NotRequired[Literal["prior", "old"]],
        "gamma": NotRequired[Probability],
        "lambda": NotRequired[Probability],
    },
)
_DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "entropy": {},
        "kl": {"to": "prior"},
        "n_step_entropy": {"gamma": 0.99, "lambda": 0.95},
    }
)


def fill_defaults(regularizers: Sequence[Regularizer]) -> list[Mapping[str, Any]]:
    """The regularizers with their defaults; an error where one has a foreign option."""
    for regularizer in regularizers:
        known_options = ("name", "weight", *_DEFAULTS[regularizer["name"]])
        for option in regularizer:
            if option not in known_options:
                raise RlcliError(
                    f"regularizer `{regularizer['name']}` has no option `{option}`",
                    suggest(option, known_options),
                )
    return [
        {**_DEFAULTS[regularizer["name"]], **regularizer}
        for regularizer in regularizers
    ]


def requires_old_policy(regularizers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the policy before the update is asked for."""
    return any(regularizer.get("to") == "old" for regularizer in regularizers)


def requires_entropy_bonus(regularizers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether returns are added to."""
    return any(regularizer["name"] == "n_step_entropy" for regularizer in regularizers)


def penalties(
    regularizers: Sequence[Mapping[str, Any]],
    family: Distribution,
    parameters: Array,
    old: Array | None,
) -> dict[str, Array]:
    """Terms of a loss `[T, B]`, of the policy's parameters `[T, B, size]`."""
    terms: dict[str, Array] = {}
    for index, regularizer in enumerate(regularizers):
        if regularizer["name"] == "entropy":
            term = -family.entropy(parameters)
        elif regularizer.get("to") == "old":
            assert old is not None  # `requires_old_policy` said so
            term = family.kl(old, parameters)
        elif regularizer["name"] == "kl":
            term = family.kl(parameters, jnp.zeros_like(parameters))
        else:
            continue  # it is in the return
        terms[f"{regularizer['name']} {index}"] = regularizer["weight"] * term
    return terms


def entropy_bonus(
    regularizers: Sequence[Mapping[str, Any]], entropy: Array, last: Array
) -> Array:
    """What later entropies add to the returns, `[T, B]`.

    `entropy` is that of the policy at `next_obs`, zero where the episode terminated.
    """

    def discounted_sum(gamma: Array, lambda_: Array) -> Array:
        def back(later: Array, step_inputs: tuple) -> tuple[Array, Array]:
            entropy, last = step_inputs
            later = gamma * (entropy + lambda_ * jnp.where(last, 0, later))
            return later, later

        nothing = jnp.zeros_like(entropy[0])
        return jax.lax.scan(back, nothing, (entropy, last), reverse=True)[1]

    return sum(
        (
            regularizer["weight"]
            * discounted_sum(regularizer["gamma"], regularizer["lambda"])
            for regularizer in regularizers
            if regularizer["name"] == "n_step_entropy"
        ),
        jnp.zeros_like(entropy),
    )
