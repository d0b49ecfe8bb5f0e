"""TD learning = rule × head: what all rules share, whatever predicts the values.

A rule says which value a row bootstraps from. What learns that value, a number or a
distribution, is the head's business; the two meet in `rlcli.updaters.critics`.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import optax

from rlcli.networks.heads import Role
from rlcli.networks.predictions import (
    LOSSES,
    Loss,
    Particles,
    Transform,
    TransformName,
    min_over_critics,
    mix_particles,
    value_transform,
)
from rlcli.policies import ValuesOffer
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
from rlcli.updaters import Spaces, require_discrete
from rlcli.updaters.burn_in import refresh_carry
from rlcli.updaters.critics import (
    Backup,
    Critic,
    all_actions_critic,
    apply_single_steps,
    backup_value,
    bootstrap_target,
    initial_carry,
    is_recurrent_critic,
    one_action_critic,
    regression_losses,
)
from rlcli.updaters.learner import Learner, Losses, Target, learner

# Folded into a key it gives one that no draw of a policy reaches, which count from 0.
_NOISE_STREAM = 2**31
_FIXED_SEED = 0  # the seed of actions that are only looked at


class TDOptions(NamedTuple):
    """What a recipe may set of every rule."""

    q: Literal["all", "one"] = "all"
    critics: Count = 1
    target: Target | None = None
    loss: Loss = "huber"
    transform: TransformName | None = None


class RuleContext(NamedTuple):
    """What a rule may ask about its rows `[T, B]`; nothing else is computed.

    A minus, as in q⁻, stands for the target parameters, where there are some. Several
    critics are one that says the least of what they say.
    """

    next_q: Callable[[], Particles]  # what follows each action at s′, by q⁻: [T,B,A,K]
    sampled_next_q: Callable[
        [], Particles
    ]  # the same of an action of the policy: [T,B,1,K]
    online_next_q: Callable[[], Array]  # q(s′, ·) [T, B, A]
    current_q: Callable[[], Array]  # q⁻(s, ·) [T, B, A]
    action_probabilities: Callable[
        [Array], Array
    ]  # q [T, B, A] -> how likely each action is
    action: Array  # the number of the action that was taken, from 0


Rule = Callable[..., Backup]


class TDParts(NamedTuple):
    """What an updater of temporal differences is made of."""

    rule: Rule
    critic: Critic
    policy: Policy
    space: gymnasium.Space  # of actions
    scale: Transform
    # (params, obs, first, carry) -> what the policy's `log_prob` wants to see
    outputs: Callable[..., ArrayTree]


def rule(
    policy: str = "epsilon_greedy", discrete_only: bool = True, **defaults: Any
) -> Callable[[Rule], Callable[..., Updater]]:
    """A decorator: registers an updater under the name of a rule.

    A rule is a function of `RuleContext`; its keyword-only parameters are options
    beside those of `TDOptions`, whose `defaults` are given here. `discrete_only`:
    whether it asks for every action, and not only for drawn ones.
    """

    def decorate(function: Rule) -> Callable[..., Updater]:
        name = function.__name__

        def updater(
            spaces: Spaces,
            networks: Callable[..., Network],
            policies: Callable[..., Policy],
            optimizer: optax.GradientTransformation,
            **options: Any,
        ) -> Updater:
            settings, rest = _split_options({**defaults, **options})
            if discrete_only or settings.q == "all":
                require_discrete(spaces, name)
            follows = functools.partial(function, **rest)
            return _action_value_updater(
                follows, settings, spaces.action, networks, policies, optimizer
            )

        updater.__name__, updater.__doc__ = name, function.__doc__
        updater.__module__ = function.__module__
        updater.__signature__ = _updater_signature(  # type: ignore[attr-defined] # PEP 362
            updater, function, defaults
        )
        facts = {"policy": policy, "tracer": "n_step", "unroll": 1}
        return register("updater", **facts)(updater)

    return decorate


def _split_options(options: dict[str, Any]) -> tuple[TDOptions, dict[str, Any]]:
    """The options of every rule, and those of the rule itself."""
    common = {k: v for k, v in options.items() if k in TDOptions._fields}
    rest = {k: v for k, v in options.items() if k not in TDOptions._fields}
    return TDOptions(**common), rest


def _updater_signature(
    updater: Callable, function: Rule, defaults: dict[str, Any]
) -> inspect.Signature:
    """What the updater takes: parts, the options of every rule, and the rule's own."""
    parts = inspect.signature(updater, eval_str=True).parameters.values()
    hints = typing.get_type_hints(TDOptions, include_extras=True)
    common = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(name, default),
            annotation=hints[name],
        )
        for name, default in TDOptions._field_defaults.items()
    ]
    _, *rule_parameters = inspect.signature(function, eval_str=True).parameters.values()
    part_parameters = [
        parameter for parameter in parts if parameter.kind is not parameter.VAR_KEYWORD
    ]
    return inspect.Signature([*part_parameters, *common, *rule_parameters])


def _action_value_updater(
    follows: Rule,
    settings: TDOptions,
    space: gymnasium.Space,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
) -> Updater:
    """The updater of a rule for action values."""
    scale = value_transform(settings.transform)
    make = {"all": all_actions_critic, "one": one_action_critic}[settings.q]
    critic = make(networks, "q", space, settings.critics)

    def values(
        params: ArrayTree, obs: ArrayTree, first: Array, carry: ArrayTree
    ) -> Array:
        prediction = critic.predict_all_actions("act", params, None, obs, first, carry)
        return min_over_critics(prediction.particles(scale)).mean()

    if isinstance(space, gymnasium.spaces.Discrete):
        policy, outputs = _value_policy(critic, scale, policies, space), values
    else:
        policy, outputs = policies(space=space), lambda *_: ()
    parts = TDParts(follows, critic, policy, space, scale, outputs)
    return td_updater(parts, settings.target, LOSSES[settings.loss], optimizer)


def _value_policy(
    critic: Critic,
    scale: Transform,
    policies: Callable[..., Policy],
    space: gymnasium.spaces.Discrete,
) -> Policy:
    """The recipe's policy on the values; noise in them is for exploring alone."""

    def apply(acting, key, obs, carry, first):
        del key
        params, noise = acting
        prediction = critic.predict_all_actions("act", params, noise, obs, first, carry)
        carries = critic.carries(params, obs, first, carry)
        return min_over_critics(prediction.particles(scale)).mean(), carries

    values = ValuesOffer(Network(critic.init, apply, critic.initial))
    inner = policies(values=values, space=space)

    def draw(key: Key, batch: int) -> tuple[ArrayTree, Key]:
        return inner.draw(key, batch), jax.random.fold_in(key, _NOISE_STREAM)

    def explore(params, obs, state, first, noise):
        return inner.explore((params, noise[1]), obs, state, first, noise[0])

    def exploit(params, obs, state, first, noise):
        return inner.exploit((params, None), obs, state, first, noise[0])

    return inner._replace(draw=draw, explore=explore, exploit=exploit)


def td_updater(
    parts: TDParts,
    target: Target | None,
    loss: Callable[[Array], Array],
    optimizer: optax.GradientTransformation,
) -> Updater:
    """The updater that learns what the rule says."""
    critic, scale = parts.critic, parts.scale
    begin, step = learner(critic.init, optimizer, target)

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        learn_key, target_key = jax.random.split(key)
        target_params = state.params if target is None else state.target
        goal = bootstrap_target(
            batch,
            parts.rule(
                _make_context(parts, state.params, target_params, batch, target_key)
            ),
        )

        steps, order = refresh_carry(
            batch,
            weight,
            lambda carry: critic.carries(state.params, batch.obs, batch.first, carry),
        )

        def losses(params) -> Losses:
            inputs = (
                learn_key,
                steps.obs,
                steps.action,
                steps.first,
                initial_carry(critic, steps),
            )
            prediction = critic.predict_action("learn", params, *inputs)
            return regression_losses(
                jax.vmap(order.backward)(prediction), goal, loss, scale
            )

        state, priority, metrics = step(state, losses, weight, clock)
        return state, Report(priority, metrics)

    def estimate(state: Learner, steps: Transition) -> Estimates:
        params, inputs = state.params, (steps.first, initial_carry(critic, steps))
        prediction = critic.predict_action(
            "act", params, None, steps.obs, steps.action, *inputs
        )
        target_params = params if target is None else state.target
        next_carries = {
            "online": critic.carries(params, steps.obs, *inputs),
            "target": critic.carries(target_params, steps.obs, *inputs),
        }
        log_prob = parts.policy.log_prob(
            parts.outputs(params, steps.obs, *inputs), steps.action
        )
        return Estimates(
            v_tm1=_expected_value(
                parts, params, _with_obs_as_next(critic, steps, next_carries["online"])
            ),
            v_t=_expected_value(
                parts, params, _with_next_carry(steps, next_carries["online"])
            ),
            log_prob=log_prob,
            q_tm1=min_over_critics(prediction.particles(scale)).mean(),
            carry=next_carries if is_recurrent_critic(critic) else (),
        )

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=parts.policy,
        update=update,
        estimate=estimate,
        failed_at=lambda state: state.failed,
        requires=("carry",) if is_recurrent_critic(critic) else (),
    )


def _with_next_carry(steps: Transition, carries: ArrayTree) -> Transition:
    """The steps, whose `next_obs` are seen with these carries by everybody."""
    next_carry = {"next_carry": {"online": carries, "target": carries}}
    return steps._replace(extras={**steps.extras, **next_carry})


def _with_obs_as_next(
    critic: Critic, steps: Transition, carries: ArrayTree
) -> Transition:
    """The steps with `obs` for `next_obs`: what is to be valued is here, not there."""
    fresh = critic.initial(steps.first.shape[1])

    def carry_before(begin: Array, after: Array, fresh: Array) -> Array:
        carries_before = jnp.concatenate([begin[None], after[:-1]])
        forgets = steps.first.reshape(
            steps.first.shape + (1,) * (carries_before.ndim - 2)
        )
        return jnp.where(forgets, fresh, carries_before)

    current_carries = jax.tree.map(
        carry_before, initial_carry(critic, steps), carries, fresh
    )
    return _with_next_carry(steps._replace(next_obs=steps.obs), current_carries)


def _make_context(
    parts: TDParts,
    online: ArrayTree,
    target_params: ArrayTree,
    rows: Transition,
    key: Key,
) -> RuleContext:
    """What the rule may ask, with a key for each answer."""
    critic, scale = parts.critic, parts.scale
    keys = jax.random.split(key, 5)
    shape = rows.first.shape
    next_carry = rows.extras.get("next_carry") or {"online": (), "target": ()}

    def predict_next(
        predict: Callable, role: Role, parameters_of: str, key: Key, *more: Array
    ) -> Any:
        params = {"online": online, "target": target_params}[parameters_of]
        function = functools.partial(predict, role, params, key)
        prediction = apply_single_steps(
            function, (rows.next_obs, *more), shape, next_carry[parameters_of]
        )
        return min_over_critics(prediction.particles(scale))

    @functools.cache
    def next_q() -> Particles:
        return predict_next(critic.predict_all_actions, "bootstrap", "target", keys[0])

    def current_q() -> Array:
        carry = initial_carry(critic, rows)
        prediction = critic.predict_all_actions(
            "act", target_params, keys[4], rows.obs, rows.first, carry
        )
        return min_over_critics(prediction.particles(scale)).mean()

    def sampled_next_q() -> Particles:
        action = _sample_next_action(
            parts.policy, online, rows, next_carry["online"], keys[1]
        )
        prediction = predict_next(
            critic.predict_action, "bootstrap", "target", keys[2], action
        )
        return jax.tree.map(lambda leaf: leaf[..., None, :], prediction)

    return RuleContext(
        next_q=next_q,
        sampled_next_q=sampled_next_q,
        online_next_q=lambda: predict_next(
            critic.predict_all_actions, "act", "online", keys[3]
        ).mean(),
        current_q=current_q,
        action_probabilities=functools.partial(_action_probabilities, parts),
        action=rows.action - _first_action(parts.space),
    )


def _sample_next_action(
    policy: Policy, acting: ArrayTree, rows: Transition, carries: ArrayTree, key: Key
) -> Array:
    """An action of the policy at `next_obs` for each of `[T, B]` rows."""
    shape = rows.first.shape
    number = rows.first.size

    def flat(leaf: Array) -> Array:
        return leaf.reshape((number, *leaf.shape[2:]))

    noise, (fresh, process) = policy.draw(key, number), policy.initial(number)
    carry = jax.tree.map(flat, carries) if jax.tree.leaves(carries) else fresh
    obs, first = jax.tree.map(flat, rows.next_obs), jnp.zeros(number, bool)
    action = policy.explore(acting, obs, (carry, process), first, noise)[0].action
    return jax.tree.map(lambda leaf: leaf.reshape((*shape, *leaf.shape[1:])), action)


def _first_action(space: gymnasium.Space) -> int:
    """The number of the first action, where they can be counted."""
    return int(space.start) if isinstance(space, gymnasium.spaces.Discrete) else 0


def _action_probabilities(parts: TDParts, q: Array) -> Array:
    """How likely each action is where these are the values, `[..., A]` both."""
    numbers = _first_action(parts.space) + jnp.arange(q.shape[-1])

    def probability_of(number: Array) -> Array:
        return parts.policy.log_prob(q, jnp.full(q.shape[:-1], number))

    return jnp.exp(jnp.moveaxis(jax.vmap(probability_of)(numbers), 0, -1))


def _expected_value(parts: TDParts, params: ArrayTree, steps: Transition) -> Array:
    """What the rule says `next_obs` is worth by these parameters, on average."""
    # An estimate is given no key. Where something has to be drawn it is the same thing
    # each time; where actions can be counted, nothing has to.
    context = _make_context(parts, params, params, steps, jax.random.key(_FIXED_SEED))
    if isinstance(parts.space, gymnasium.spaces.Discrete):
        context = context._replace(sampled_next_q=lambda: expected_next_q(context))
    return backup_value(parts.rule(context))


def expected_next_q(context: RuleContext) -> Particles:
    """What follows an action of the policy, whichever it is: `[T, B, 1, A · K]`."""
    next_q = context.next_q()
    mixture = mix_particles(next_q, context.action_probabilities(next_q.mean()))
    return jax.tree.map(lambda leaf: leaf[..., None, :], mixture)
