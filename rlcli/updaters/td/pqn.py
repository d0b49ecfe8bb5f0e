"""Parallelised Q-networks (PQN): Q-learning from unrolls, without replay or target."""

import functools

import jax.numpy as jnp
from jaxtyping import Float

from rlcli.networks.heads import action_values_head
from rlcli.networks.memory import apply_to_next, is_recurrent
from rlcli.policies import ValuesOffer, predict
from rlcli.registry import register
from rlcli.types import (
    Array,
    ArrayTree,
    Count,
    Estimates,
    PerRow,
    Report,
    Transition,
    Updater,
    UpdaterTraits,
)
from rlcli.updaters import Parts, require_discrete
from rlcli.updaters.burn_in import first_carry, refresh_carry
from rlcli.updaters.learner import Learner, Losses, Term, learner, masked_mean
from rlcli.updaters.minibatch_epochs import minibatch_epochs
from rlcli.xla.indexing import select_index


@register(
    "updater",
    network={"name": "mlp", "layer_norm": True},
    policy="epsilon_greedy",
    tracer={"name": "lambda_return", "gamma": 0.99, "lambda": 0.65},
    unroll=32,
)
def pqn(
    parts: Parts,
    *,
    epochs: Count = 2,
    minibatches: Count = 4,
    sequence: Count | None = None,
) -> Updater:
    """Parallelised Q-networks (PQN): Q(λ) in minibatch epochs over each unroll.

        Gₜ = rₜ₊₁ + γ ((1 − λ) max q(sₜ₊₁, ·) + λ Gₜ₊₁)        ½ (q(s, a) − G)²

    (Gallici et al., 2024, https://arxiv.org/abs/2407.04811). The tracer `lambda_return`
    computes G once, before the update. Many parallel environments replace the replay,
    and layer norm replaces the target network. `sequence` is the number of consecutive
    steps that stay together in a minibatch; null: 1, or the whole unroll if the network
    is recurrent.
    """
    spaces, networks, policies, optimizer = parts
    actions = require_discrete(spaces, "pqn")
    network = networks("q", functools.partial(action_values_head, int(actions.n)))
    recurrent = is_recurrent(network)
    policy = policies(values=ValuesOffer(network), space=actions)
    policy = policy._replace(
        inspection=policy.inspection._replace(action_values=predict(network))
    )
    init, step = learner(network.init, optimizer)

    def q(
        params: ArrayTree, steps: Transition
    ) -> tuple[Float[Array, "T B A"], PerRow, ArrayTree]:
        """Values of all actions and of the action taken; carries after each step."""
        carry = first_carry(steps) if recurrent else ()
        q_values, carries = network.apply(params, None, steps.obs, carry, steps.first)
        action_value = select_index(q_values, steps.action - int(actions.start))
        return q_values, action_value, carries

    def max_next_q(params: ArrayTree, steps: Transition, carries: ArrayTree) -> PerRow:
        return jnp.max(apply_to_next(network, params, steps.next_obs, carries), axis=-1)

    def losses(minibatch: tuple, params: ArrayTree) -> Losses:
        steps, weight, target = minibatch
        _, action_value, _ = q(params, steps)
        error = action_value - target
        terms = [Term(0.5 * error**2, is_weighted=True, name="q_loss")]
        row_metrics = {"td_error": jnp.abs(error), "q": action_value}
        zeros = jnp.zeros(weight.shape[1:])
        return Losses(terms, zeros, row_metrics, inputs={"target": target})

    def update(state, batch, weight, clock, key):
        carries = batch.extras["next_carry"] if recurrent else ()
        target = batch.reward + batch.discount * max_next_q(
            state.params, batch, carries
        )
        _, action_value, after = q(state.params, batch)
        refreshed, order = refresh_carry(batch, weight, lambda carry: after)

        def learn(state: Learner, minibatch: tuple) -> tuple[Learner, dict[str, Array]]:
            loss = functools.partial(losses, minibatch)
            state, _, metrics = step(state, loss, minibatch[1], clock)
            return state, metrics

        state, metrics = minibatch_epochs(
            learn,
            state,
            (refreshed, *order.forward((weight, target))),
            key,
            length=sequence or (weight.shape[0] if recurrent else 1),
            epochs=epochs,
            minibatches=minibatches,
            updater="pqn",
        )
        priority = masked_mean(jnp.abs(target - action_value), weight, axis=0)
        return state, Report(priority, metrics)

    def estimate(state, steps, key):
        del key  # nothing is sampled
        q_values, action_value, carries = q(state.params, steps)
        return Estimates(
            v_tm1=jnp.max(q_values, axis=-1),
            v_t=max_next_q(state.params, steps, carries),
            log_prob=policy.log_prob(q_values, steps.action),
            q_tm1=action_value,
            carry=carries,
        )

    return Updater(
        init=init,
        policy=policy,
        update=update,
        estimate=estimate,
        traits=UpdaterTraits(
            is_data_parallel=True,
            requires=("carry",) if recurrent else (),
            gradient_steps=epochs * minibatches,
        ),
    )
