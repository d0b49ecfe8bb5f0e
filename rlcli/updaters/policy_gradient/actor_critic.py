"""Actor-critic: what updaters with a policy and a value share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rlcli.distributions import Distribution
from rlcli.networks.heads import parameters, state_value
from rlcli.networks.memory import following, recurrent
from rlcli.policies import Parameters
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
from rlcli.updaters import Spaces, stochastic
from rlcli.updaters.burn_in import refreshed
from rlcli.updaters.learner import Learner, Losses, learner, mean
from rlcli.updaters.minibatch_epochs import length_of, passes, sequences, variance
from rlcli.updaters.regularizers import (
    Regularizer,
    bonus,
    filled,
    penalties,
    wants_bonus,
    wants_old,
)
from rlcli.xla.control_flow import kept


class Functions(NamedTuple):
    """A policy, and the value of states; without one every value is zero."""

    family: Distribution
    actor: Network
    critic: Network | None
    both: Network  # the actor to act with: it carries the critic's memory as well
    recurrent: bool


class Batch(NamedTuple):
    """Rows `[T, B]`, or sequences `[L, N]`, with what stays fixed while learning."""

    steps: Transition
    weight: Array
    target: Array  # what the value should be
    value: Array  # what it was before this update
    advantage: Array  # the tracer's, or the difference; normalized where asked for
    old: Array | None  # `[..., size]`: the policy before this update, if asked for


class Options(NamedTuple):
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
    options: Options,
    needs: tuple[str, ...] = (),
) -> Updater:
    """An updater by its objective: what it makes of log π(a|s) and the advantage Â.

    The tracer says what the value should be, and Â is that minus what it was before the
    update, unless the tracer has left an `advantage` among the extras. `needs` are the
    extras that the objective reads.
    """
    functions = functions_of(name, spaces, networks, options.baseline)
    regularizers = filled(options.regularizers)
    offered = Parameters(functions.both, functions.family)
    policy = policies(distribution=offered, space=spaces.action)

    def init(key: Key) -> ArrayTree:
        critic = functions.critic.init(key) if functions.critic else {}
        return {**functions.actor.init(key), **critic}

    begin, step = learner(init, optimizer)

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        rows = _rows(functions, regularizers, state.params, batch, weight)
        asked = (functions, state.params, batch)
        ready, order = refreshed(batch, weight, functools.partial(_carries, *asked))
        rows = order.there(rows._replace(steps=()))._replace(steps=ready)
        steps = weight.shape[0]
        whole = functions.recurrent or options.epochs == options.minibatches == 1
        length = length_of(options.sequence, whole, steps)

        def learn(carry: tuple, part: Batch) -> tuple[tuple, dict[str, Array]]:
            before, going = carry
            loss = functools.partial(
                losses, functions, objective, options, regularizers, part
            )
            after, _, metrics = step(before, loss, part.weight, clock)
            if options.kl_limit is None:
                return (after, going), metrics
            # Not `<=`: a divergence that is no number is the loss's to report.
            far = divergence(functions, before.params, part) > options.kl_limit
            going = going & ~far
            metrics = {**metrics, "stopped": 1.0 - going}
            return (kept(going, after, before), going), metrics

        (state, _), metrics = passes(
            learn,
            (state, jnp.bool_(True)),
            sequences(rows, length, name),
            key,
            epochs=options.epochs,
            minibatches=options.minibatches,
            updater=name,
        )
        error = jnp.abs(rows.target - rows.value)
        if functions.critic:
            metrics["explained_variance"] = explained(rows)
        return state, Report(mean(error, rows.weight, axis=0), metrics)

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=policy,
        update=update,
        estimate=functools.partial(_estimate, functions, regularizers),
        failed=lambda state: state.failed,
        needs=(*needs, "carry") if functions.recurrent else needs,
    )


def functions_of(
    name: str, spaces: Spaces, networks: Callable[..., Network], baseline: bool
) -> Functions:
    """Policy and value on the recipe's networks."""
    family = stochastic(spaces.action, name)
    actor = networks("policy", functools.partial(parameters, family))
    critic = networks("value", state_value) if baseline else None
    whose = {"policy": actor} | ({"value": critic} if critic else {})
    remember = {name for name, each in whose.items() if recurrent(each)}
    if not remember:
        return Functions(family, actor, critic, actor, False)

    def apply(params, key, obs, carry, first):
        found = {
            name: each.apply(params, key, obs, carry[name], first)
            for name, each in whose.items()
            if name == "policy" or name in remember
        }
        carries = {name: each[1] for name, each in found.items()}
        return found["policy"][0], {**carry, **carries}

    def initial(batch: int) -> ArrayTree:
        return {name: each.initial(batch) for name, each in whose.items()}

    return Functions(family, actor, critic, Network(actor.init, apply, initial), True)


def losses(
    functions: Functions,
    objective: Objective,
    options: Options,
    regularizers: Sequence[Mapping],
    batch: Batch,
    params: ArrayTree,
) -> Losses:
    """The objective, the value's error, and the regularizers."""
    weight = batch.weight
    if options.normalize_advantage:
        scaled = normalized(batch.advantage, weight)
        batch = batch._replace(advantage=scaled)
    found, _ = _policy(functions, params, batch.steps)
    log_prob = functions.family.log_prob(found, batch.steps.action)
    policy, said = objective(log_prob, batch)
    terms = {"policy": policy}
    terms |= penalties(regularizers, functions.family, found, batch.old)
    metrics = {"entropy": functions.family.entropy(found), **said}
    priority = jnp.zeros(weight.shape[1:])  # it is that of before the update
    if functions.critic:
        value, _ = _value(functions, params, batch.steps)
        error = 0.5 * (value - batch.target) ** 2
        metrics["value_loss"] = error
        if options.value_clip_ratio is not None:
            far = options.value_clip_ratio
            clipped = batch.value + jnp.clip(value - batch.value, -far, far)
            error = jnp.maximum(error, 0.5 * (clipped - batch.target) ** 2)
        terms["critic"] = options.value_weight * error
    metrics = {name: mean(each, weight) for name, each in metrics.items()}
    return Losses(terms, priority, metrics)


def divergence(functions: Functions, params: ArrayTree, batch: Batch) -> Array:
    """How far the policy is from the one that acted, approximately: a scalar.

    E[ρ − 1 − log ρ] with ρ = π(a|s) / π_old(a|s), which estimates KL(π_old ‖ π) without
    bias and is never negative (Schulman, 2020, http://joschu.net/blog/kl-approx.html).
    """
    found, _ = _policy(functions, params, batch.steps)
    log_prob = functions.family.log_prob(found, batch.steps.action)
    log_ratio = log_prob - batch.steps.extras["log_prob"]
    return mean(jnp.exp(log_ratio) - 1 - log_ratio, batch.weight)


def normalized(advantage: Array, weight: Array) -> Array:
    """Zero mean and unit deviation, over the rows that count."""
    centred = advantage - mean(advantage, weight)
    return centred / (jnp.sqrt(variance(advantage, weight)) + 1e-8)


def explained(batch: Batch) -> Array:
    """The share of the targets' variance that the values know: 1 at best."""
    left = variance(batch.target - batch.value, batch.weight)
    return 1 - left / (variance(batch.target, batch.weight) + 1e-8)


def _memories(functions: Functions, steps: Transition) -> Mapping[str, ArrayTree]:
    """What each function carries into the first of the steps."""
    if not functions.recurrent:
        return {"policy": (), "value": ()}
    return jax.tree.map(lambda leaf: leaf[0], steps.extras["carry"])


def _carries(
    functions: Functions, params: ArrayTree, steps: Transition, carry: ArrayTree
) -> ArrayTree:
    """What each function carries after each step, from what before the first."""
    begun = jax.tree.map(lambda leaf: leaf[None], carry)
    steps = steps._replace(extras={**steps.extras, "carry": begun})
    found = {"policy": _policy(functions, params, steps)[1]}
    if functions.critic:
        found["value"] = _value(functions, params, steps)[1]
    return found


def _policy(
    functions: Functions, params: ArrayTree, steps: Transition
) -> tuple[Array, ArrayTree]:
    """Parameters of the policy `[T, B, size]`, and the carries after each step."""
    memory = _memories(functions, steps)["policy"]
    return functions.actor.apply(params, None, steps.obs, memory, steps.first)


def _value(
    functions: Functions, params: ArrayTree, steps: Transition
) -> tuple[Array, ArrayTree]:
    """Values `[T, B]`, and the carries after each step."""
    if functions.critic is None:
        return jnp.zeros(steps.reward.shape), ()
    memory = _memories(functions, steps)["value"]
    return functions.critic.apply(params, None, steps.obs, memory, steps.first)


def _next_value(
    functions: Functions, params: ArrayTree, steps: Transition, carries: ArrayTree
) -> Array:
    """Values of the next observations, `[T, B]`."""
    if functions.critic is None:
        return jnp.zeros(steps.reward.shape)
    return following(functions.critic, params, steps.next_obs, carries)


def _rows(
    functions: Functions,
    regularizers: Sequence[Mapping],
    params: ArrayTree,
    steps: Transition,
    weight: Array,
) -> Batch:
    """The rows that a tracer left, with targets and advantages."""
    seen = steps.extras.get("next_carry", ())
    carries = seen["value"] if functions.recurrent else ()
    value, _ = _value(functions, params, steps)
    target = steps.reward + steps.discount * _next_value(
        functions, params, steps, carries
    )
    advantage = steps.extras.get("advantage", target - value)
    if wants_bonus(regularizers):
        more = bonus(regularizers, seen["entropy"], steps.last)
        target, advantage = target + more, advantage + more
    old = _policy(functions, params, steps)[0] if wants_old(regularizers) else None
    return Batch(steps, weight, target, value, advantage, old)


def _estimate(
    functions: Functions,
    regularizers: Sequence[Mapping],
    state: Learner,
    steps: Transition,
) -> Estimates:
    """What the parameters say of raw steps, and what `next_obs` is seen with."""
    params, family = state.params, functions.family
    found, policy = _policy(functions, params, steps)
    v_tm1, value = _value(functions, params, steps)
    carry = {"policy": policy, "value": value} if functions.recurrent else {}
    if wants_bonus(regularizers):
        ahead = following(functions.actor, params, steps.next_obs, policy)
        # Here, for after the tracer nobody knows where an episode terminated.
        carry["entropy"] = steps.discount * family.entropy(ahead)
    return Estimates(
        v_tm1=v_tm1,
        v_t=_next_value(functions, params, steps, value),
        log_prob=family.log_prob(found, steps.action),
        q_tm1=v_tm1,  # a state value knows no actions
        carry=carry or (),
    )
