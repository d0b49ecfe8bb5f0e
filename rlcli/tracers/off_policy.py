"""Off-policy returns: V-trace and Retrace(λ)."""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from rlcli.registry import register
from rlcli.types import (
    Array,
    Estimates,
    NonNegative,
    Positive,
    Probability,
    Tracer,
    Transition,
)


@register("tracer")
def v_trace(
    *,
    gamma: Probability = 0.99,
    lambda_: Probability = 1.0,
    clip_rho: Positive = 1.0,
    clip_c: NonNegative = 1.0,
) -> Tracer:
    """V-trace: the off-policy corrected n-step value target of IMPALA.

        ρₜ = min(ρ̄, π/μ)        cₜ = λ min(c̄, π/μ)
        Vₜ = v(sₜ) + ρₜ (rₜ₊₁ + γₜ₊₁ v(sₜ₊₁) − v(sₜ)) + γₜ₊₁ cₜ (Vₜ₊₁ − v(sₜ₊₁))
        Âₜ = ρₜ (rₜ₊₁ + γₜ₊₁ (λ Vₜ₊₁ + (1 − λ) v(sₜ₊₁)) − v(sₜ))

    ρ̄ is `clip_rho` and c̄ is `clip_c`. π is the target policy of the updater, the
    current policy of an actor-critic; μ is the behavior policy. The row's `reward` is
    Vₜ, its discount is 0, and `extras["advantage"]` is Âₜ. At the end of an episode,
    and of `[T, B]` steps, v(sₜ₊₁) replaces Vₜ₊₁: a truncated episode bootstraps from
    its true next observation (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561).
    """

    def trace(steps: Transition, estimates: Estimates) -> Transition:
        # Not `rlax.vtrace_td_error_and_advantage`: it has no c̄, and its advantage
        # bootstraps from the value of the next row, also where an episode is truncated.
        v_tm1, v_t = estimates.v_tm1, estimates.v_t
        discount = gamma * steps.discount
        ratio = jnp.exp(estimates.log_prob - steps.extras["log_prob"])
        rho, c = jnp.minimum(clip_rho, ratio), lambda_ * jnp.minimum(clip_c, ratio)
        continues = 1.0 - steps.last  # the last row is multiplied by 0 below
        error = rho * (steps.reward + discount * v_t - v_tm1)
        # V − v; the recursion stops at the end of an episode.
        correction = _accumulate(error, discount * c * continues)
        value = v_tm1 + correction
        next_target = jnp.concatenate([value[1:], v_t[-1:]])
        next_target = v_t + lambda_ * continues * (next_target - v_t)
        advantage = rho * (steps.reward + discount * next_target - v_tm1)
        return steps._replace(
            reward=value,
            discount=jnp.zeros_like(value),
            extras={**steps.extras, "advantage": advantage},
        )

    return Tracer(1, trace, gamma, ("log_prob",), is_off_policy=True, sequence_length=2)


@register("tracer")
def retrace(*, gamma: Probability = 0.99, lambda_: Probability = 1.0) -> Tracer:
    """Retrace(λ): a target for action values that is safe for any behavior policy.

        Qₜ = rₜ₊₁ + γₜ₊₁ (v(sₜ₊₁) + cₜ₊₁ (Qₜ₊₁ − q(sₜ₊₁, aₜ₊₁)))
        cₜ = λ min(1, π/μ)

    v is the expected action value under the target policy π of the updater: the greedy
    policy for Q-learning, so c is 0 after other actions. μ is the behavior policy. The
    values use the target parameters, if there are any. The row's `reward` is Qₜ,
    and its discount is 0. At the end of an episode, and of `[T, B]` steps, c is 0: a
    truncated episode bootstraps from its true next observation (Munos et al., 2016,
    https://arxiv.org/abs/1606.02647). It needs consecutive steps: an unroll, or the
    replays `sequences` and `episodes`.
    """

    def trace(steps: Transition, estimates: Estimates) -> Transition:
        # `rlax.general_off_policy_returns_from_q_and_v` differs only in rounding, but
        # does more within the scan: it takes 1.4 times as long to compile and, for
        # `[2048, 64]` steps, 1.4 times as long to run.
        q_tm1, v_t = estimates.q_tm1, estimates.v_t
        discount = gamma * steps.discount
        ratio = jnp.exp(estimates.log_prob - steps.extras["log_prob"])
        c = lambda_ * jnp.minimum(1.0, ratio)
        next_c = jnp.concatenate([c[1:], c[-1:]])  # the last is multiplied by 0 below
        error = steps.reward + discount * v_t - q_tm1
        weight = discount * next_c * (1.0 - steps.last)
        value = q_tm1 + _accumulate(error, weight)
        return steps._replace(reward=value, discount=jnp.zeros_like(value))

    return Tracer(1, trace, gamma, ("log_prob",), is_off_policy=True, sequence_length=2)


def _accumulate(
    error: Float[Array, "T B"], weight: Float[Array, "T B"]
) -> Float[Array, "T B"]:
    """xₜ = eₜ + wₜ xₜ₊₁, computed backwards; 0 after the last step."""

    def scan_step(later: Float[Array, "B"], step_inputs: tuple) -> tuple:
        error, weight = step_inputs
        total = error + weight * later
        return total, total

    begin = jnp.zeros_like(error[0])
    return jax.lax.scan(scan_step, begin, (error, weight), reverse=True)[1]
