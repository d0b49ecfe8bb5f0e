"""Temporal-difference (TD) updaters: one rule combined with any return head.

A rule selects the value a row bootstraps from. The head determines how that value is
learned, as a number or as a distribution. `rlcli.updaters.critics` combines the two.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float

from rlcli.distributions import Distribution
from rlcli.networks.memory import is_recurrent
from rlcli.networks.predictions import (
    LOSSES,
    Loss,
    Particles,
    Prediction,
    TransformName,
    value_transform,
)
from rlcli.types import (
    Array,
    ArrayTree,
    Count,
    Estimates,
    Network,
    Params,
    Report,
    Transition,
    Updater,
    UpdaterTraits,
)
from rlcli.updaters import Parts, require_discrete
from rlcli.updaters.burn_in import refresh_carry
from rlcli.updaters.critics import (
    Backup,
    Critic,
    RowPriority,
    add_penalty,
    all_actions_critic,
    backup_value,
    bootstrap_target,
    gradient_norms,
    initial_carry,
    one_action_critic,
    regression_losses,
)
from rlcli.updaters.decorator import (
    describe_function,
    require_parentheses,
    updater_decorator,
)
from rlcli.updaters.learner import Losses, Target, learner
from rlcli.updaters.td.rule_context import (
    Rule,
    TDParts,
    apply_rule,
    expected_next_q,
    first_action,
    make_context,
)
from rlcli.updaters.value_policy import value_policy
from rlcli.xla.indexing import select_index

Priority = Literal["td_error", "loss", "gradient_norm"]
_SECTIONS = {"policy": "epsilon_greedy", "tracer": "n_step", "unroll": 1}


class TDOptions(NamedTuple):
    """The options of every rule."""

    q: Literal["all", "one"] = "all"
    critics: Count = 1
    target: Target | None = None
    loss: Loss = "huber"
    transform: TransformName | None = None
    priority: Priority = "td_error"  # reported to a prioritized replay


def rule(
    no_function: None = None,
    /,
    *,
    discrete_only: bool = True,
    preset_of: str = "",
    **defaults: Any,
) -> Callable[[Rule], Callable[..., Updater]]:
    """Decorator that registers a TD updater under the name of its rule.

    A rule is a function of `RuleContext`. The options of the updater are the rule's
    keyword-only parameters and those of `TDOptions`. `defaults` override the default
    values of the latter, and those of recipes with this updater: `policy`, `tracer`,
    `replay`, `unroll`, `network` and its `head`. `discrete_only`: the rule uses the
    values of all actions, not only of sampled ones, so the action space has to be
    Discrete. `preset_of` names the rule that this one is, with other defaults.
    """
    require_parentheses(rule, no_function)

    def build(
        rule_function: functools.partial, options: TDOptions, parts: Parts
    ) -> Updater:
        function = rule_function.func
        if discrete_only or options.q == "all":
            require_discrete(parts.spaces, function.__name__)
        label = describe_function(rule, function)
        apply = functools.partial(apply_rule, rule_function, label, parts.spaces.action)
        return action_value_updater(apply, options, parts)

    return updater_decorator(
        rule, build, TDOptions, TDOptions._fields, defaults, _SECTIONS, preset_of
    )


def action_value_updater(
    rule_function: Rule,
    options: TDOptions,
    parts: Parts,
    *,
    penalty: Callable[[Array, Array], Array] | None = None,
    family: Distribution | None = None,
) -> Updater:
    """The TD updater of a rule for action values.

    `penalty` is a term of the loss, see `TDParts`. With a `family` of distributions,
    policies may sample actions from it, with the action values as its parameters.
    """
    spaces, networks, policies, optimizer = parts
    space, transform = spaces.action, value_transform(options.transform)
    build_critic = {"all": all_actions_critic, "one": one_action_critic}[options.q]
    critic = build_critic(networks, "q", space, options.critics)

    def values(params, key, obs, carry, first):
        carries = critic.carries(params, obs, first, carry)
        prediction = critic.predict_all_actions("act", params, key, obs, first, carry)
        return prediction.particles(transform).min_over_critics().mean(), carries

    def outputs(params, obs, first, carry):
        return values(params, None, obs, carry, first)[0] if is_discrete else ()

    is_discrete = isinstance(space, gymnasium.spaces.Discrete)
    if is_discrete:
        network = Network(critic.init, values, critic.initial)
        policy = value_policy(network, policies, space, family)
    else:
        policy = policies(space=space)
    td_parts = TDParts(
        rule_function, critic, policy, space, transform, outputs, penalty
    )
    return td_updater(
        td_parts,
        options.target,
        LOSSES[options.loss],
        optimizer,
        priority=options.priority,
    )


def td_updater(
    parts: TDParts,
    target: Target | None,
    loss: Callable[[Array], Array],
    optimizer: optax.GradientTransformation,
    priority: Priority = "td_error",
) -> Updater:
    """The updater that regresses the critic on the rule's bootstrap targets.

    With the target y and the prediction z, `priority` selects the reported priority:
    |E[y] − E[z]| of each row, the row's loss minus its minimum over z, or the gradient
    norm of each column's loss.
    """
    critic, transform = parts.critic, parts.transform
    init, step = learner(critic.init, optimizer, target)
    row_priority: RowPriority = "loss" if priority == "loss" else "td_error"

    def regress(prediction: Prediction, td_target: Particles) -> Losses:
        inputs = prediction, td_target, loss, transform
        return regression_losses(*inputs, critic.metric, row_priority)

    def update(state, batch, weight, clock, key):
        learn_key, target_key = jax.random.split(key)
        target_params = state.params if target is None else state.target
        td_target = bootstrap_target(
            batch,
            parts.rule(
                make_context(parts, state.params, target_params, batch, target_key)
            ),
        )

        steps, order = refresh_carry(
            batch,
            weight,
            lambda carry: critic.carries(state.params, batch.obs, batch.first, carry),
        )

        rows = steps.obs, steps.action, steps.first
        # With a time axis, because `gradient_norms` maps over axis 1 of all inputs.
        carry = jax.tree.map(lambda leaf: leaf[None], initial_carry(critic, steps))

        def predict_rows(params: Params, rows: tuple, carry: ArrayTree) -> Prediction:
            initial = jax.tree.map(lambda leaf: leaf[0], carry)
            return critic.predict_action("learn", params, learn_key, *rows, initial)

        def losses(params: Params) -> Losses:
            prediction = predict_rows(params, rows, carry)
            # The targets are in the order of the batch, so the prediction of each
            # critic is put back into this order.
            result = regress(jax.vmap(order.backward)(prediction), td_target)
            if parts.penalty is None:
                return result
            q = critic.predict_all_actions(
                "learn",
                params,
                learn_key,
                steps.obs,
                steps.first,
                initial_carry(critic, steps),
            )
            index = steps.action - first_action(parts.space)
            penalty = parts.penalty(q.particles(transform).mean(), index)
            return add_penalty(result, order.backward(penalty))

        def column_losses(params: Params, column: tuple) -> Float[Array, "T 1"]:
            *inputs, column_target = column
            (term,) = regress(predict_rows(params, *inputs), column_target).terms
            return term.value

        new_state, reported, metrics = step(state, losses, weight, clock)
        if priority == "gradient_norm":
            ordered_target, ordered_weight = order.forward((td_target, weight))
            columns = rows, carry, ordered_target
            reported = gradient_norms(
                column_losses, state.params, columns, ordered_weight
            )
        return new_state, Report(reported, metrics)

    def estimate(state, steps, key):
        # Multi-step returns bootstrap from the target parameters, as one-step targets
        # do (Munos et al., 2016, https://arxiv.org/abs/1606.02647).
        params, inputs = state.params, (steps.first, initial_carry(critic, steps))
        target_params = params if target is None else state.target
        prediction = critic.predict_action(
            "act", target_params, None, steps.obs, steps.action, *inputs
        )
        next_carries = {
            "online": critic.carries(params, steps.obs, *inputs),
            "target": critic.carries(target_params, steps.obs, *inputs),
        }

        def expected_backup(obs: ArrayTree, carries: dict[str, ArrayTree]) -> Backup:
            """The rule's backup at `obs`, with expectations instead of samples.

            The expectation over Discrete actions is exact; other actions are sampled.
            `carries` are the online and target carries before `obs`, `[T, B, ...]`.
            """
            extras = {**steps.extras, "next_carry": carries}
            rows = steps._replace(next_obs=obs, extras=extras)
            context = make_context(parts, params, target_params, rows, key)
            if isinstance(parts.space, gymnasium.spaces.Discrete):
                context = context._replace(
                    sampled_next_q=lambda: expected_next_q(context)
                )
            return parts.rule(context)

        backup = expected_backup(
            steps.obs, _carries_before(critic, steps, next_carries)
        )
        next_backup = expected_backup(steps.next_obs, next_carries)
        outputs = parts.outputs(target_params, steps.obs, *inputs)
        if backup.target_policy is None:
            log_prob = parts.policy.log_prob(outputs, steps.action)
        else:
            index = steps.action - first_action(parts.space)
            log_prob = jnp.log(select_index(backup.target_policy, index))
        return Estimates(
            v_tm1=backup_value(backup),
            v_t=backup_value(next_backup),
            log_prob=log_prob,
            q_tm1=prediction.particles(transform).min_over_critics().mean(),
            carry=next_carries if is_recurrent(critic) else (),
        )

    return Updater(
        init=init,
        policy=parts.policy,
        update=update,
        estimate=estimate,
        traits=UpdaterTraits(
            is_data_parallel=True,
            requires=("carry",) if is_recurrent(critic) else (),
            priority=priority,
        ),
    )


def _carries_before(
    critic: Critic, steps: Transition, carries: dict[str, ArrayTree]
) -> dict[str, ArrayTree]:
    """The carries before each step, from those after each step, `[T, B, ...]`."""
    initial = initial_carry(critic, steps)
    fresh = critic.initial(steps.first.shape[1])

    def carry_before(initial: Array, after: Array, fresh: Array) -> Array:
        before = jnp.concatenate([initial[None], after[:-1]])
        is_first = steps.first.reshape(steps.first.shape + (1,) * (before.ndim - 2))
        return jnp.where(is_first, fresh, before)

    return {
        name: jax.tree.map(carry_before, initial, after, fresh)
        for name, after in carries.items()
    }
