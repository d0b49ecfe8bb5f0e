"""The n-step return."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Shaped

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
        reward = shift(steps.reward, 0)
        discount = gamma * shift(steps.discount, 0)
        # The fields of the state after the last step of a row.
        next_fields = {k: v for k, v in steps.extras.items() if k.startswith("next_")}
        next_fields = {**next_fields, "next_obs": steps.next_obs}
        final = jax.tree.map(lambda leaf: shift(leaf, 0), next_fields)
        last = shift(steps.last, 0)
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
        return Transition(
            obs=jax.tree.map(lambda leaf: shift(leaf, 0), steps.obs),
            action=jax.tree.map(lambda leaf: shift(leaf, 0), steps.action),
            reward=reward,
            discount=discount,
            next_obs=final.pop("next_obs"),
            first=shift(steps.first, 0),
            last=last,
            extras={**jax.tree.map(lambda leaf: leaf[:rows], steps.extras), **final},
        )

    return Tracer(n, trace, gamma)


def _select_rows(
    condition: Bool[Array, "T B"],
    new: Shaped[Array, "T B *rest"],
    old: Shaped[Array, "T B *rest"],
) -> Shaped[Array, "T B *rest"]:
    """Selects `new` where `condition` holds, else `old`."""
    shape = condition.shape + (1,) * (old.ndim - condition.ndim)
    return jnp.where(condition.reshape(shape), new, old)
