"""The n-step return."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from rlcli.registry import register
from rlcli.types import Array, Count, Estimates, Probability, Tracer, Transition


@register("tracer")
def n_step(*, n: Count = 1, gamma: Probability = 0.99) -> Tracer:
    """Sums rewards over `n` steps, or until the episode ends.

        R = rₜ₊₁ + γ rₜ₊₂ + … + γⁿ⁻¹ rₜ₊ₙ        I = γⁿ, or 0 once terminated

    Where the episode ends after k < n steps the sum stops there: I = γᵏ and the next
    observation is the true last one if it was cut short, I = 0 if it terminated.
    Of `[T, B]` steps the first T − n + 1 rows are complete (Sutton, 1988).
    """

    def trace(steps: Transition, estimates: Estimates) -> Transition:
        del estimates  # only for tracers that bootstrap
        rows = steps.reward.shape[0] - n + 1

        def shifted(field: Array, k: int) -> Array:
            return field[k : k + rows]

        reward = shifted(steps.reward, 0)
        discount = gamma * shifted(steps.discount, 0)
        ahead = {k: v for k, v in steps.extras.items() if k.startswith("next_")}
        ahead = {**ahead, "next_obs": steps.next_obs}
        following = jax.tree.map(lambda leaf: shifted(leaf, 0), ahead)
        last = shifted(steps.last, 0)
        for k in range(1, n):
            going = ~last  # the k-th step still belongs to the row's episode
            reward = reward + jnp.where(going, discount * shifted(steps.reward, k), 0)
            later = jax.tree.map(functools.partial(shifted, k=k), ahead)
            following = jax.tree.map(functools.partial(_where, going), later, following)
            factor = jnp.where(going, gamma * shifted(steps.discount, k), 1)
            discount = discount * factor
            last = last | shifted(steps.last, k)
        return Transition(
            obs=jax.tree.map(lambda leaf: shifted(leaf, 0), steps.obs),
            action=jax.tree.map(lambda leaf: shifted(leaf, 0), steps.action),
            reward=reward,
            discount=discount,
            next_obs=following.pop("next_obs"),
            first=shifted(steps.first, 0),
            last=last,
            extras={
                **jax.tree.map(lambda leaf: leaf[:rows], steps.extras),
                **following,
            },
        )

    return Tracer(n, trace)


def _where(condition: Array, new: Array, old: Array) -> Array:
    """Takes `new` where `condition` `[T, B]` holds; `[T, B, ...]` both."""
    shape = condition.shape + (1,) * (old.ndim - condition.ndim)
    return jnp.where(condition.reshape(shape), new, old)
