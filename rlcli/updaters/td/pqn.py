"""Parallelised Q-networks: Q-learning of unrolls, without replay or target."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from rlcli.action_masks import allowed
from rlcli.networks.heads import action_values
from rlcli.networks.memory import following, recurrent
from rlcli.policies import Values
from rlcli.registry import register
from rlcli.types import (
    Array,
    ArrayTree,
    Clock,
    Count,
    Estimates,
    Key,
    Network,
    Policy,
    Report,
    Transition,
    Updater,
)
from rlcli.updaters import Spaces, discrete
from rlcli.updaters.burn_in import refreshed
from rlcli.updaters.learner import Learner, Losses, learner, mean
from rlcli.updaters.minibatch_epochs import length_of, passes, sequences
from rlcli.xla.indexing import selected


@register(
    "updater",
    network={"name": "mlp", "layer_norm": True},
    policy="epsilon_greedy",
    tracer={"name": "lambda_return", "gamma": 0.99, "lambda": 0.65},
    unroll=32,
)
def pqn(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    epochs: Count = 2,
    minibatches: Count = 4,
    sequence: Count | None = None,
) -> Updater:
    """Moves q(s, a) towards λ-returns of the best actions, several times an unroll.

        Gₜ = rₜ₊₁ + γ ((1 − λ) max q(sₜ₊₁, ·) + λ Gₜ₊₁)        ½ (q(s, a) − G)²

    (Gallici et al., 2024, https://arxiv.org/abs/2407.04811). G is that of before the
    update, from the tracer `lambda_return`; many environments stand in for a replay,
    and layer norm for a target network. `sequence` is how many consecutive steps stay
    together in a minibatch; null: one, or, with a memory, the whole unroll.
    """
    actions = discrete(spaces, "pqn")
    network = networks("q", functools.partial(action_values, int(actions.n)))
    remembers = recurrent(network)
    policy = policies(values=Values(network), space=actions)
    begin, step = learner(network.init, optimizer)

    def q(params: ArrayTree, steps: Transition) -> tuple[Array, Array, ArrayTree]:
        """All values, that of the action taken, and the carries after each step."""
        carry = steps.extras["carry"] if remembers else ()
        carry = jax.tree.map(lambda leaf: leaf[0], carry)
        found, carries = network.apply(params, None, steps.obs, carry, steps.first)
        taken = selected(found, steps.action - int(actions.start))
        return found, taken, carries

    def best(params: ArrayTree, steps: Transition, carries: ArrayTree) -> Array:
        return jnp.max(following(network, params, steps.next_obs, carries), axis=-1)

    def losses(part: tuple, params: ArrayTree) -> Losses:
        steps, weight, target = part
        found, taken, _ = q(params, steps)
        error = taken - target
        worth = jnp.mean(found, axis=-1, where=allowed(found))
        metrics = {"td_error": jnp.abs(error), "q": worth}
        metrics = {name: mean(each, weight) for name, each in metrics.items()}
        return Losses({"critic": 0.5 * error**2}, jnp.zeros(weight.shape[1:]), metrics)

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        carries = batch.extras["next_carry"] if remembers else ()
        target = batch.reward + batch.discount * best(state.params, batch, carries)
        _, taken, after = q(state.params, batch)
        ready, order = refreshed(batch, weight, lambda carry: after)

        def learn(state: Learner, part: tuple) -> tuple[Learner, dict[str, Array]]:
            loss = functools.partial(losses, part)
            state, _, metrics = step(state, loss, part[1], clock)
            return state, metrics

        length = length_of(sequence, remembers, weight.shape[0])
        state, metrics = passes(
            learn,
            state,
            sequences((ready, *order.there((weight, target))), length, "pqn"),
            key,
            epochs=epochs,
            minibatches=minibatches,
            updater="pqn",
        )
        priority = mean(jnp.abs(target - taken), weight, axis=0)
        return state, Report(priority, metrics)

    def estimate(state: Learner, steps: Transition) -> Estimates:
        found, taken, carries = q(state.params, steps)
        return Estimates(
            v_tm1=jnp.max(found, axis=-1),
            v_t=best(state.params, steps, carries),
            log_prob=policy.log_prob(found, steps.action),
            q_tm1=taken,
            carry=carries,
        )

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=policy,
        update=update,
        estimate=estimate,
        failed=lambda state: state.failed,
        needs=("carry",) if remembers else (),
    )
