"""Actor-critic: what updaters with a policy and a value share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rlcli.distributions import Distribution
from rlcli.networks.heads import distribution_head, state_value_head
from rlcli.networks.memory import apply_to_next, is_recurrent
from rlcli.policies import DistributionOffer
from rlcli.types import (
    Array,
    ArrayTree,
    Clock,
    Count,
    Estimates,
    Key,
    Network,
    NonNegative,
    Policy,
    Positive,
    Report,
    Transition,
    Updater,
)
from rlcli.updaters import Spaces, default_distribution
from rlcli.updaters.burn_in import refresh_carry
from rlcli.updaters.learner import Learner, Losses, learner, masked_mean
from rlcli.updaters.minibatch_epochs import (
    masked_variance,
    minibatch_epochs,
    sequence_length,
    split_sequences,
)
from rlcli.updaters.regularizers import (
    Regularizer,
    entropy_bonus,
    fill_defaults,
    penalties,
    requires_entropy_bonus,
    requires_old_policy,
)
from rlcli.xla.control_flow import tree_select


class ActorCriticNetworks(NamedTuple):
    """A policy, and the value of states; without one every value is zero."""

    family: Distribution
    actor: Network
    critic: Network | None
    joint_actor: (
        Network  # the actor to act with: it carries the critic's memory as well
    )
    is_recurrent: bool


class Batch(NamedTuple):
    """Rows `[T, B]`, or sequences `[L, N]`, with what stays fixed while learning."""

    steps: Transition
    weight: Array
    target: Array  # what the value should be
    value: Array  # what it was before this update
    advantage: Array  # the tracer's, or the difference; normalized where asked for
    old_policy: (
        Array | None
    )  # `[..., size]`: the policy before this update, if asked for


class ActorCriticOptions(NamedTuple):
    """What the updaters below may set; the meaning is that of `ppo`'s options."""

    value_weight: NonNegative = 0.5
    normalize_advantage: bool = False
    regularizers: Sequence[Regularizer] = ()
    baseline: bool = True
    value_clip_ratio: Positive | None = None
    kl_limit: Positive | None = None
    epochs: Count = 1
    minibatches: Count = 1
    sequence: Count | None = None


# (log π(a|s), rows) -> the policy's loss, and metrics; all `[T, B]`
Objective = Callable[[Array, Batch], tuple[Array, Mapping[str, Array]]]


def actor_critic(
    name: str,
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    objective: Objective,
    options: ActorCriticOptions,
    requires: tuple[str, ...] = (),
) -> Updater:
    """An updater by its objective: what it makes of log π(a|s) and the advantage Â.

    The tracer says what the value should be, and Â is that minus what it was before the
    update, unless the tracer has left an `advantage` among the extras. `requires` are
    the extras that the objective reads.
    """
    functions = build_actor_critic(name, spaces, networks, options.baseline)
    regularizers = fill_defaults(options.regularizers)
    offer = DistributionOffer(functions.joint_actor, functions.family)
    policy = policies(distribution=offer, space=spaces.action)

    def init(key: Key) -> ArrayTree:
        critic = functions.critic.init(key) if functions.critic else {}
        return {**functions.actor.init(key), **critic}

    begin, step = learner(init, optimizer)

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        rows = _make_batch(functions, regularizers, state.params, batch, weight)
        carries_of = (functions, state.params, batch)
        ready, order = refresh_carry(
            batch, weight, functools.partial(_unroll_carries, *carries_of)
        )
        rows = order.forward(rows._replace(steps=()))._replace(steps=ready)
        steps = weight.shape[0]
        is_whole_unroll = (
            functions.is_recurrent or options.epochs == options.minibatches == 1
        )
        length = sequence_length(options.sequence, is_whole_unroll, steps)

        def learn(carry: tuple, part: Batch) -> tuple[tuple, dict[str, Array]]:
            state_before, is_learning = carry
            loss = functools.partial(
                actor_critic_losses, functions, objective, options, regularizers, part
            )
            after, _, metrics = step(state_before, loss, part.weight, clock)
            if options.kl_limit is None:
                return (after, is_learning), metrics
            # Not `<=`: a divergence that is no number is the loss's to report.
            far = (
                approximate_kl(functions, state_before.params, part) > options.kl_limit
            )
            is_learning = is_learning & ~far
            metrics = {**metrics, "stopped": 1.0 - is_learning}
            return (tree_select(is_learning, after, state_before), is_learning), metrics

        (state, _), metrics = minibatch_epochs(
            learn,
            (state, jnp.bool_(True)),
            split_sequences(rows, length, name),
            key,
            epochs=options.epochs,
            minibatches=options.minibatches,
            updater=name,
        )
        error = jnp.abs(rows.target - rows.value)
        if functions.critic:
            metrics["explained_variance"] = explained_variance(rows)
        return state, Report(masked_mean(error, rows.weight, axis=0), metrics)

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=policy,
        update=update,
        estimate=functools.partial(_estimate, functions, regularizers),
        failed_at=lambda state: state.failed,
        requires=(*requires, "carry") if functions.is_recurrent else requires,
    )


def build_actor_critic(
    name: str, spaces: Spaces, networks: Callable[..., Network], baseline: bool
) -> ActorCriticNetworks:
    """Policy and value on the recipe's networks."""
    family = default_distribution(spaces.action, name)
    actor = networks("policy", functools.partial(distribution_head, family))
    critic = networks("value", state_value_head) if baseline else None
    functions = {"policy": actor} | ({"value": critic} if critic else {})
    remember = {name for name, function in functions.items() if is_recurrent(function)}
    if not remember:
        return ActorCriticNetworks(family, actor, critic, actor, False)

    def apply(params, key, obs, carry, first):
        results = {
            name: function.apply(params, key, obs, carry[name], first)
            for name, function in functions.items()
            if name == "policy" or name in remember
        }
        carries = {name: result[1] for name, result in results.items()}
        return results["policy"][0], {**carry, **carries}

    def initial(batch: int) -> ArrayTree:
        return {name: function.initial(batch) for name, function in functions.items()}

    return ActorCriticNetworks(
        family, actor, critic, Network(actor.init, apply, initial), True
    )


def actor_critic_losses(
    functions: ActorCriticNetworks,
    objective: Objective,
    options: ActorCriticOptions,
    regularizers: Sequence[Mapping],
    batch: Batch,
    params: ArrayTree,
) -> Losses:
    """The objective, the value's error, and the regularizers."""
    weight = batch.weight
    if options.normalize_advantage:
        advantage = standardize(batch.advantage, weight)
        batch = batch._replace(advantage=advantage)
    outputs, _ = _policy_outputs(functions, params, batch.steps)
    log_prob = functions.family.log_prob(outputs, batch.steps.action)
    policy, objective_metrics = objective(log_prob, batch)
    terms = {"policy": policy}
    terms |= penalties(regularizers, functions.family, outputs, batch.old_policy)
    metrics = {"entropy": functions.family.entropy(outputs), **objective_metrics}
    priority = jnp.zeros(weight.shape[1:])  # it is that of before the update
    if functions.critic:
        value, _ = _values(functions, params, batch.steps)
        error = 0.5 * (value - batch.target) ** 2
        metrics["value_loss"] = error
        if options.value_clip_ratio is not None:
            far = options.value_clip_ratio
            clipped_value = batch.value + jnp.clip(value - batch.value, -far, far)
            error = jnp.maximum(error, 0.5 * (clipped_value - batch.target) ** 2)
        terms["critic"] = options.value_weight * error
    metrics = {name: masked_mean(metric, weight) for name, metric in metrics.items()}
    return Losses(terms, priority, metrics)


def approximate_kl(
    functions: ActorCriticNetworks, params: ArrayTree, batch: Batch
) -> Array:
    """How far the policy is from the one that acted, approximately: a scalar.

    E[ρ − 1 − log ρ] with ρ = π(a|s) / π_old(a|s), which estimates KL(π_old ‖ π) without
    bias and is never negative (Schulman, 2020, http://joschu.net/blog/kl-approx.html).
    """
    outputs, _ = _policy_outputs(functions, params, batch.steps)
    log_prob = functions.family.log_prob(outputs, batch.steps.action)
    log_ratio = log_prob - batch.steps.extras["log_prob"]
    return masked_mean(jnp.exp(log_ratio) - 1 - log_ratio, batch.weight)


def standardize(advantage: Array, weight: Array) -> Array:
    """Zero mean and unit deviation, over the rows that count."""
    deviation = advantage - masked_mean(advantage, weight)
    return deviation / (jnp.sqrt(masked_variance(advantage, weight)) + 1e-8)


def explained_variance(batch: Batch) -> Array:
    """The share of the targets' variance that the values know: 1 at best."""
    left = masked_variance(batch.target - batch.value, batch.weight)
    return 1 - left / (masked_variance(batch.target, batch.weight) + 1e-8)


def _initial_carries(
    functions: ActorCriticNetworks, steps: Transition
) -> Mapping[str, ArrayTree]:
    """What each function carries into the first of the steps."""
    if not functions.is_recurrent:
        return {"policy": (), "value": ()}
    return jax.tree.map(lambda leaf: leaf[0], steps.extras["carry"])


def _unroll_carries(
    functions: ActorCriticNetworks,
    params: ArrayTree,
    steps: Transition,
    carry: ArrayTree,
) -> ArrayTree:
    """What each function carries after each step, from what before the first."""
    first_carry = jax.tree.map(lambda leaf: leaf[None], carry)
    steps = steps._replace(extras={**steps.extras, "carry": first_carry})
    carries = {"policy": _policy_outputs(functions, params, steps)[1]}
    if functions.critic:
        carries["value"] = _values(functions, params, steps)[1]
    return carries


def _policy_outputs(
    functions: ActorCriticNetworks, params: ArrayTree, steps: Transition
) -> tuple[Array, ArrayTree]:
    """Parameters of the policy `[T, B, size]`, and the carries after each step."""
    carry = _initial_carries(functions, steps)["policy"]
    return functions.actor.apply(params, None, steps.obs, carry, steps.first)


def _values(
    functions: ActorCriticNetworks, params: ArrayTree, steps: Transition
) -> tuple[Array, ArrayTree]:
    """Values `[T, B]`, and the carries after each step."""
    if functions.critic is None:
        return jnp.zeros(steps.reward.shape), ()
    carry = _initial_carries(functions, steps)["value"]
    return functions.critic.apply(params, None, steps.obs, carry, steps.first)


def _next_values(
    functions: ActorCriticNetworks,
    params: ArrayTree,
    steps: Transition,
    carries: ArrayTree,
) -> Array:
    """Values of the next observations, `[T, B]`."""
    if functions.critic is None:
        return jnp.zeros(steps.reward.shape)
    return apply_to_next(functions.critic, params, steps.next_obs, carries)


def _make_batch(
    functions: ActorCriticNetworks,
    regularizers: Sequence[Mapping],
    params: ArrayTree,
    steps: Transition,
    weight: Array,
) -> Batch:
    """The rows that a tracer left, with targets and advantages."""
    next_carries = steps.extras.get("next_carry", ())
    carries = next_carries["value"] if functions.is_recurrent else ()
    value, _ = _values(functions, params, steps)
    target = steps.reward + steps.discount * _next_values(
        functions, params, steps, carries
    )
    advantage = steps.extras.get("advantage", target - value)
    if requires_entropy_bonus(regularizers):
        more = entropy_bonus(regularizers, next_carries["entropy"], steps.last)
        target, advantage = target + more, advantage + more
    old = (
        _policy_outputs(functions, params, steps)[0]
        if requires_old_policy(regularizers)
        else None
    )
    return Batch(steps, weight, target, value, advantage, old)


def _estimate(
    functions: ActorCriticNetworks,
    regularizers: Sequence[Mapping],
    state: Learner,
    steps: Transition,
) -> Estimates:
    """What the parameters say of raw steps, and what `next_obs` is seen with."""
    params, family = state.params, functions.family
    outputs, policy = _policy_outputs(functions, params, steps)
    v_tm1, value = _values(functions, params, steps)
    carry = {"policy": policy, "value": value} if functions.is_recurrent else {}
    if requires_entropy_bonus(regularizers):
        next_outputs = apply_to_next(functions.actor, params, steps.next_obs, policy)
        # Here, for after the tracer nobody knows where an episode terminated.
        carry["entropy"] = steps.discount * family.entropy(next_outputs)
    return Estimates(
        v_tm1=v_tm1,
        v_t=_next_values(functions, params, steps, value),
        log_prob=family.log_prob(outputs, steps.action),
        q_tm1=v_tm1,  # a state value knows no actions
        carry=carry or (),
    )
