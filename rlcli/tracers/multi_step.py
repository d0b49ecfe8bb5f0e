"""Returns: n-step and Monte Carlo returns, the λ-return, and with it GAE."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Shaped

from rlcli.registry import register
from rlcli.types import Array, Count, Estimates, Probability, Tracer, Transition


@register("tracer")
def n_step(*, n: Count = 1, gamma: Probability = 0.99) -> Tracer:
    """n-step return: sums rewards over `n` steps or until the episode ends.

        R = rₜ₊₁ + γ rₜ₊₂ + … + γⁿ⁻¹ rₜ₊ₙ        I = γⁿ, or 0 once terminated

    If the episode ends after k < n steps, the sum stops there. A truncated episode has
    I = γᵏ and the true last observation as `next_obs`; a terminated one has I = 0. Of
    `[T, B]` steps, the first T − n + 1 rows are complete (Sutton, 1988).
    """

    def trace(steps: Transition, estimates: Estimates) -> Transition:
        del estimates  # only for tracers that bootstrap
        rows = steps.reward.shape[0] - n + 1

        def shift(field: Shaped[Array, "T ..."], k: int) -> Shaped[Array, "rows ..."]:
            return field[k : k + rows]

        # Not `rlax.n_step_bootstrapped_returns`: it adds the bootstrap value to the
        # sum, but an updater bootstraps later, from the row's own `next_obs`.
        begin = jax.tree.map(lambda leaf: shift(leaf, 0), steps)
        reward, discount, last = begin.reward, gamma * begin.discount, begin.last
        next_fields, final = _next_fields(steps), _next_fields(begin)
        for k in range(1, n):
            continues = ~last  # the k-th step still belongs to the row's episode
            reward = reward + jnp.where(continues, discount * shift(steps.reward, k), 0)
            shifted_fields = jax.tree.map(functools.partial(shift, k=k), next_fields)
            final = jax.tree.map(
                functools.partial(_select_rows, continues), shifted_fields, final
            )
            factor = jnp.where(continues, gamma * shift(steps.discount, k), 1)
            discount = discount * factor
            last = last | shift(steps.last, k)
        return begin._replace(
            reward=reward,
            discount=discount,
            next_obs=final.pop("next_obs"),
            last=last,
            extras={**begin.extras, **final},
        )

    return Tracer(n, trace, gamma)


def _next_fields(steps: Transition) -> dict:
    """The fields of the state after each step: `next_obs`, and extras."""
    extras = {k: v for k, v in steps.extras.items() if k.startswith("next_")}
    return {**extras, "next_obs": steps.next_obs}


def _select_rows(
    condition: Bool[Array, "T B"],
    new: Shaped[Array, "T B *rest"],
    old: Shaped[Array, "T B *rest"],
) -> Shaped[Array, "T B *rest"]:
    """Selects `new` where `condition` holds, else `old`."""
    shape = condition.shape + (1,) * (old.ndim - condition.ndim)
    return jnp.where(condition.reshape(shape), new, old)


@register("tracer")
def monte_carlo(*, gamma: Probability = 0.99) -> Tracer:
    """Monte Carlo return: sums rewards to the end; bootstraps only if truncated.

        Gₜ = rₜ₊₁ + γ rₜ₊₂ + … + γᵏ⁻¹ rₜ₊ₖ        I = γᵏ if truncated, else 0

    k is the number of steps to the end. Where a time limit, or the end of `[T, B]`
    steps, truncates the episode, `next_obs` of all its rows is the true last
    observation (Sutton and Barto, 2018, chapter 5). Use it with `replay: episodes`,
    which returns whole episodes.
    """

    def trace(steps: Transition, estimates: Estimates) -> Transition:
        del estimates  # only for tracers that bootstrap
        rows = steps.reward.shape[0]
        ends = jnp.asarray(steps.last).at[-1].set(True)
        time = jnp.broadcast_to(jnp.arange(rows)[:, None], ends.shape)

        # Not `rlax.discounted_returns`: it adds the bootstrap value to the sum, but
        # rows contain sum, discount and true last observation; one scan returns them.
        def scan_step(later: tuple, step_inputs: tuple) -> tuple[tuple, tuple]:
            reward, discount, end, time = step_inputs
            later_return, later_discount, end_time = later
            result = (
                reward + jnp.where(end, 0.0, discount * later_return),
                discount * jnp.where(end, 1.0, later_discount),
                jnp.where(end, time, end_time),
            )
            return result, result

        begin = (steps.reward[-1], steps.discount[-1], time[-1])
        inputs = (steps.reward, gamma * steps.discount, ends, time)
        _, (reward, discount, end) = jax.lax.scan(
            scan_step, begin, inputs, reverse=True
        )

        def at_end(leaf: Shaped[Array, "T B ..."]) -> Shaped[Array, "T B ..."]:
            index = end.reshape(end.shape + (1,) * (leaf.ndim - 2))
            return jnp.take_along_axis(leaf, index, axis=0)

        final = jax.tree.map(at_end, _next_fields(steps))
        return steps._replace(
            reward=reward,
            discount=discount,
            next_obs=final.pop("next_obs"),
            last=at_end(steps.last),
            extras={**steps.extras, **final},
        )

    return Tracer(None, trace, gamma)


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
