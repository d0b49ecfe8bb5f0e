"""The λ-return and generalized advantage estimation (GAE)."""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from rlcli.registry import register
from rlcli.types import Array, Estimates, Probability, Tracer, Transition


@register("tracer")
def lambda_return(*, gamma: Probability = 0.99, lambda_: Probability = 0.95) -> Tracer:
    """λ-return: mixes n-step returns of all n (Sutton, 1988; Schulman et al., 2016).

        Gₜ = rₜ₊₁ + γₜ₊₁ ((1 − λₜ₊₁) v(sₜ₊₁) + λₜ₊₁ Gₜ₊₁)

    λ is zero at the end of an episode, so a truncated episode bootstraps from its true
    next observation. The last step of the unroll does the same. `Gₜ − v(sₜ)` is the
    generalized advantage (GAE; https://arxiv.org/abs/1506.02438). The row's `reward` is
    Gₜ, and its discount is 0. It needs consecutive steps: an unroll, or the replays
    `sequences` and `episodes`.
    """

    def trace(steps: Transition, estimates: Estimates) -> Transition:
        discount = gamma * steps.discount
        mixing = jnp.where(steps.last, 0.0, lambda_)

        # The same bits as `rlax.lambda_returns`, in the same time.
        def scan_step(later_return: Float[Array, "B"], step_inputs: tuple) -> tuple:
            reward, discount, mixing, value = step_inputs
            next_value = (1 - mixing) * value + mixing * later_return
            current_return = reward + discount * next_value
            return current_return, current_return

        inputs = (steps.reward, discount, mixing, estimates.v_t)
        _, returns = jax.lax.scan(scan_step, estimates.v_t[-1], inputs, reverse=True)
        return steps._replace(reward=returns, discount=jnp.zeros_like(returns))

    return Tracer(1, trace, gamma, sequence_length=2)
