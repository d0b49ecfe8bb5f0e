"""The Monte Carlo return of an episode."""

import jax
import jax.numpy as jnp
from jaxtyping import Shaped

from rlcli.registry import register
from rlcli.types import Array, Estimates, Probability, Tracer, Transition


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

        next_extras = {k: v for k, v in steps.extras.items() if k.startswith("next_")}
        return steps._replace(
            reward=reward,
            discount=discount,
            next_obs=jax.tree.map(at_end, steps.next_obs),
            last=at_end(steps.last),
            extras={**steps.extras, **jax.tree.map(at_end, next_extras)},
        )

    return Tracer(None, trace, gamma)
