"""Regularizers: terms added to the policy objective, such as an entropy bonus.

With policy parameters θ, weight w, and means over the rows:

- `entropy`: adds −w H(π(·|s)) to the loss (Williams & Peng, 1991,
  https://doi.org/10.1080/09540099108946587);
- `kl` to `prior`: adds w KL(π(·|s) ‖ p), where all parameters of p are zero: uniform
  over legal discrete actions, the standard normal distribution over continuous ones;
- `kl` to `old`: adds w KL(π_old(·|s) ‖ π(·|s)), where π_old is the policy before this
  update (Schulman et al., 2017, https://arxiv.org/abs/1707.06347, section 4);
- `kl` to `initial`: adds w KL(π_0(·|s) ‖ π(·|s)), where π_0 is the policy at the start
  of the run: with `init` a teacher (kickstarting, Schmitt et al., 2018,
  https://arxiv.org/abs/1803.03835). A weight that falls to 0 lets go of it;
- `n_step_entropy`: adds the discounted entropies of later states to the return,

      Gₜ += w Σ_{k≥1} γᵏ λᵏ⁻¹ H(π(·|sₜ₊ₖ))

  up to the end of the episode or of the unroll. The state where an episode terminates
  is excluded, because no action is taken there; the state where it is truncated is
  included. With the γ and λ of the tracer `lambda_return`, the learned values are soft
  values, v(s) = E Σ γᵏ (rₖ₊₁ + w γₖ₊₁ H(π(·|sₖ₊₁))) (Haarnoja et al., 2018,
  https://arxiv.org/abs/1801.01290). Rows must be single steps: with `n_step`, use n = 1
  and λ = 0. The entropy at s itself is excluded: add `entropy` with the same weight.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Required, TypedDict

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from rlcli.distributions import Distribution
from rlcli.distributions.action_masks import uniform_like
from rlcli.errors import RlcliError, suggest
from rlcli.networks.functions import SHARED, statistics_group
from rlcli.types import Array, NonNegative, PerRow, Probability
from rlcli.updaters.learner import Term

Regularizer = TypedDict(  # functional syntax, because `lambda` is a Python keyword
    "Regularizer",
    {
        "name": Required[Literal["entropy", "kl", "n_step_entropy"]],
        "weight": Required[NonNegative],
        "to": NotRequired[Literal["prior", "old", "initial"]],
        "gamma": NotRequired[Probability],
        "lambda": NotRequired[Probability],
    },
)
# The groups of parameters that a policy acts with.
POLICY_GROUPS = ("policy", SHARED, statistics_group("policy"))
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "entropy": {},
    "kl": {"to": "prior"},
    "n_step_entropy": {"gamma": 0.99, "lambda": 0.95},
}


def fill_defaults(regularizers: Sequence[Regularizer]) -> list[Mapping[str, Any]]:
    """Returns the regularizers with defaults; raises an error on unknown options."""
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


def refers_to(regularizers: Sequence[Mapping[str, Any]], policy: str) -> bool:
    """Whether a regularizer needs another policy: that before the update (`old`) …

    … or that at the start of the run (`initial`).
    """
    return any(regularizer.get("to") == policy for regularizer in regularizers)


def initial_groups(regularizers: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The groups of parameters whose values at the start of the run are needed."""
    return POLICY_GROUPS if refers_to(regularizers, "initial") else ()


def requires_entropy_bonus(regularizers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a regularizer adds an entropy bonus to returns."""
    return any(regularizer["name"] == "n_step_entropy" for regularizer in regularizers)


def penalties(
    regularizers: Sequence[Mapping[str, Any]],
    family: Distribution,
    parameters: Float[Array, "T B size"],
    others: Mapping[str, Float[Array, "T B size"]],
) -> list[Term]:
    """Terms of a policy loss, from the parameters of the policy.

    `others` are those of the `old` and the `initial` policy, if they are needed.
    """
    terms = []
    for regularizer in regularizers:
        if regularizer["name"] == "entropy":
            term = -family.entropy(parameters)
        elif regularizer.get("to") in ("old", "initial"):
            term = family.kl(others[regularizer["to"]], parameters)
        elif regularizer["name"] == "kl":
            term = family.kl(parameters, uniform_like(parameters))
        else:
            continue  # `n_step_entropy` is part of the return
        weighted = regularizer["weight"] * term
        terms.append(Term(weighted, is_weighted=False, name=regularizer["name"]))
    return terms


def entropy_bonus(
    regularizers: Sequence[Mapping[str, Any]], entropy: PerRow, last: Bool[Array, "T B"]
) -> PerRow:
    """The discounted sum of later entropies, added to the returns.

    `entropy` is the policy's at `next_obs`, zero where the episode terminated.
    """

    def discounted_sum(gamma: float, lambda_: float) -> PerRow:
        # `rlax.discounted_returns` returns the same up to rounding. It would change the
        # results of recipes, and compiles in 1.3 times the time.
        def scan_step(later: Float[Array, "B"], step_inputs: tuple) -> tuple:
            entropy, last = step_inputs
            later = gamma * (entropy + lambda_ * jnp.where(last, 0, later))
            return later, later

        zeros = jnp.zeros_like(entropy[0])
        return jax.lax.scan(scan_step, zeros, (entropy, last), reverse=True)[1]

    return sum(
        (
            regularizer["weight"]
            * discounted_sum(regularizer["gamma"], regularizer["lambda"])
            for regularizer in regularizers
            if regularizer["name"] == "n_step_entropy"
        ),
        jnp.zeros_like(entropy),
    )
