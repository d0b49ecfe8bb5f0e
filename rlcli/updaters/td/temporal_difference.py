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
    Transforms,
    least,
    mixed,
    transform,
)
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
from rlcli.updaters.critics import (
    Backup,
    Critic,
    all_actions,
    alone,
    bootstrapped,
    carried,
    one_action,
    regression,
    remembers,
    value,
)
from rlcli.updaters.learner import Learner, Losses, Target, learner

# Folded into a key it gives one that no draw of a policy reaches, which count from 0.
_APART = 2**31
_FIXED = 0  # the seed of actions that are only looked at


class Settings(NamedTuple):
    """What a recipe may set of every rule."""

    q: Literal["all", "one"] = "all"
    critics: Count = 1
    target: Target | None = None
    loss: Loss = "huber"
    transform: Transforms | None = None


class Ask(NamedTuple):
    """What a rule may ask about its rows `[T, B]`; nothing else is computed.

    A minus, as in q⁻, stands for the target parameters, where there are some. Several
    critics are one that says the least of what they say.
    """

    every: Callable[[], Particles]  # what follows each action at s′, by q⁻: [T,B,A,K]
    drawn: Callable[[], Particles]  # the same of an action of the policy: [T,B,1,K]
    online: Callable[[], Array]  # q(s′, ·) [T, B, A]
    before: Callable[[], Array]  # q⁻(s, ·) [T, B, A]
    policy: Callable[[Array], Array]  # q [T, B, A] -> how likely each action is
    action: Array  # the number of the action that was taken, from 0


Rule = Callable[..., Backup]


class Learning(NamedTuple):
    """What an updater of temporal differences is made of."""

    rule: Rule
    critic: Critic
    policy: Policy
    space: gymnasium.Space  # of actions
    scale: Transform
    # (params, obs, first, carry) -> what the policy's `log_prob` wants to see
    outputs: Callable[..., ArrayTree]


def rule(
    policy: str = "epsilon_greedy", counted: bool = True, **defaults: Any
) -> Callable[[Rule], Callable[..., Updater]]:
    """A decorator: registers an updater under the name of a rule.

    A rule is a function of `Ask`; its keyword-only parameters are options beside those
    of `Settings`, whose `defaults` are given here. `counted`: whether it asks for every
    action, and not only for drawn ones.
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
            settings, rest = _split({**defaults, **options})
            if counted or settings.q == "all":
                discrete(spaces, name)
            follows = functools.partial(function, **rest)
            return _of_actions(
                follows, settings, spaces.action, networks, policies, optimizer
            )

        updater.__name__, updater.__doc__ = name, function.__doc__
        updater.__module__ = function.__module__
        updater.__signature__ = _signature(  # type: ignore[attr-defined] # PEP 362
            updater, function, defaults
        )
        facts = {"policy": policy, "tracer": "n_step", "unroll": 1}
        return register("updater", **facts)(updater)

    return decorate


def _split(options: dict[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """The options of every rule, and those of the rule itself."""
    common = {k: v for k, v in options.items() if k in Settings._fields}
    rest = {k: v for k, v in options.items() if k not in Settings._fields}
    return Settings(**common), rest


def _signature(
    updater: Callable, function: Rule, defaults: dict[str, Any]
) -> inspect.Signature:
    """What the updater takes: parts, the options of every rule, and the rule's own."""
    parts = inspect.signature(updater, eval_str=True).parameters.values()
    hints = typing.get_type_hints(Settings, include_extras=True)
    common = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(name, default),
            annotation=hints[name],
        )
        for name, default in Settings._field_defaults.items()
    ]
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    given = [each for each in parts if each.kind is not each.VAR_KEYWORD]
    return inspect.Signature([*given, *common, *own])


def _of_actions(
    follows: Rule,
    settings: Settings,
    space: gymnasium.Space,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
) -> Updater:
    """The updater of a rule for action values."""
    scale = transform(settings.transform)
    make = {"all": all_actions, "one": one_action}[settings.q]
    critic = make(networks, "q", space, settings.critics)

    def values(
        params: ArrayTree, obs: ArrayTree, first: Array, carry: ArrayTree
    ) -> Array:
        found = critic.every("act", params, None, obs, first, carry)
        return least(found.particles(scale)).mean()

    if isinstance(space, gymnasium.spaces.Discrete):
        policy, outputs = _acting(critic, scale, policies, space), values
    else:
        policy, outputs = policies(space=space), lambda *_: ()
    parts = Learning(follows, critic, policy, space, scale, outputs)
    return assembled(parts, settings.target, LOSSES[settings.loss], optimizer)


def _acting(
    critic: Critic,
    scale: Transform,
    policies: Callable[..., Policy],
    space: gymnasium.spaces.Discrete,
) -> Policy:
    """The recipe's policy on the values; noise in them is for exploring alone."""

    def apply(acting, key, obs, carry, first):
        del key
        params, noise = acting
        found = critic.every("act", params, noise, obs, first, carry)
        carries = critic.carries(params, obs, first, carry)
        return least(found.particles(scale)).mean(), carries

    values = Values(Network(critic.init, apply, critic.initial))
    inner = policies(values=values, space=space)

    def draw(key: Key, batch: int) -> tuple[ArrayTree, Key]:
        return inner.draw(key, batch), jax.random.fold_in(key, _APART)

    def explore(params, obs, state, first, noise):
        return inner.explore((params, noise[1]), obs, state, first, noise[0])

    def exploit(params, obs, state, first, noise):
        return inner.exploit((params, None), obs, state, first, noise[0])

    return inner._replace(draw=draw, explore=explore, exploit=exploit)


def assembled(
    parts: Learning,
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
        here, there = jax.random.split(key)
        follower = state.params if target is None else state.target
        goal = bootstrapped(
            batch, parts.rule(_ask(parts, state.params, follower, batch, there))
        )

        steps, order = refreshed(
            batch,
            weight,
            lambda carry: critic.carries(state.params, batch.obs, batch.first, carry),
        )

        def losses(params) -> Losses:
            asked = (here, steps.obs, steps.action, steps.first, carried(critic, steps))
            found = critic.taken("learn", params, *asked)
            return regression(jax.vmap(order.back)(found), goal, loss, scale)

        state, priority, metrics = step(state, losses, weight, clock)
        return state, Report(priority, metrics)

    def estimate(state: Learner, steps: Transition) -> Estimates:
        params, asked = state.params, (steps.first, carried(critic, steps))
        found = critic.taken("act", params, None, steps.obs, steps.action, *asked)
        follower = params if target is None else state.target
        ahead = {
            "online": critic.carries(params, steps.obs, *asked),
            "target": critic.carries(follower, steps.obs, *asked),
        }
        log_prob = parts.policy.log_prob(
            parts.outputs(params, steps.obs, *asked), steps.action
        )
        return Estimates(
            v_tm1=_worth(parts, params, _now(critic, steps, ahead["online"])),
            v_t=_worth(parts, params, _then(steps, ahead["online"])),
            log_prob=log_prob,
            q_tm1=least(found.particles(scale)).mean(),
            carry=ahead if remembers(critic) else (),
        )

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=parts.policy,
        update=update,
        estimate=estimate,
        failed=lambda state: state.failed,
        needs=("carry",) if remembers(critic) else (),
    )


def _then(steps: Transition, carries: ArrayTree) -> Transition:
    """The steps, whose `next_obs` are seen with these carries by everybody."""
    seen = {"next_carry": {"online": carries, "target": carries}}
    return steps._replace(extras={**steps.extras, **seen})


def _now(critic: Critic, steps: Transition, carries: ArrayTree) -> Transition:
    """The steps with `obs` for `next_obs`: what is to be valued is here, not there."""
    fresh = critic.initial(steps.first.shape[1])

    def before(begin: Array, after: Array, fresh: Array) -> Array:
        known = jnp.concatenate([begin[None], after[:-1]])
        forgets = steps.first.reshape(steps.first.shape + (1,) * (known.ndim - 2))
        return jnp.where(forgets, fresh, known)

    seen = jax.tree.map(before, carried(critic, steps), carries, fresh)
    return _then(steps._replace(next_obs=steps.obs), seen)


def _ask(
    parts: Learning, online: ArrayTree, follower: ArrayTree, rows: Transition, key: Key
) -> Ask:
    """What the rule may ask, with a key for each answer."""
    critic, scale = parts.critic, parts.scale
    keys = jax.random.split(key, 5)
    shape = rows.first.shape
    seen = rows.extras.get("next_carry") or {"online": (), "target": ()}

    def ahead(asked: Callable, role: Role, who: str, key: Key, *more: Array) -> Any:
        params = {"online": online, "target": follower}[who]
        function = functools.partial(asked, role, params, key)
        found = alone(function, (rows.next_obs, *more), shape, seen[who])
        return least(found.particles(scale))

    @functools.cache
    def every() -> Particles:
        return ahead(critic.every, "bootstrap", "target", keys[0])

    def before() -> Array:
        carry = carried(critic, rows)
        found = critic.every("act", follower, keys[4], rows.obs, rows.first, carry)
        return least(found.particles(scale)).mean()

    def drawn() -> Particles:
        action = _drawn(parts.policy, online, rows, seen["online"], keys[1])
        found = ahead(critic.taken, "bootstrap", "target", keys[2], action)
        return jax.tree.map(lambda leaf: leaf[..., None, :], found)

    return Ask(
        every=every,
        drawn=drawn,
        online=lambda: ahead(critic.every, "act", "online", keys[3]).mean(),
        before=before,
        policy=functools.partial(_likely, parts),
        action=rows.action - _start(parts.space),
    )


def _drawn(
    policy: Policy, acting: ArrayTree, rows: Transition, carries: ArrayTree, key: Key
) -> Array:
    """An action of the policy at `next_obs` for each of `[T, B]` rows."""
    shape = rows.first.shape
    number = rows.first.size

    def flat(leaf: Array) -> Array:
        return leaf.reshape((number, *leaf.shape[2:]))

    noise, (fresh, process) = policy.draw(key, number), policy.initial(number)
    memory = jax.tree.map(flat, carries) if jax.tree.leaves(carries) else fresh
    obs, going = jax.tree.map(flat, rows.next_obs), jnp.zeros(number, bool)
    action = policy.explore(acting, obs, (memory, process), going, noise)[0].action
    return jax.tree.map(lambda leaf: leaf.reshape((*shape, *leaf.shape[1:])), action)


def _start(space: gymnasium.Space) -> int:
    """The number of the first action, where they can be counted."""
    return int(space.start) if isinstance(space, gymnasium.spaces.Discrete) else 0


def _likely(parts: Learning, q: Array) -> Array:
    """How likely each action is where these are the values, `[..., A]` both."""
    numbers = _start(parts.space) + jnp.arange(q.shape[-1])

    def one(number: Array) -> Array:
        return parts.policy.log_prob(q, jnp.full(q.shape[:-1], number))

    return jnp.exp(jnp.moveaxis(jax.vmap(one)(numbers), 0, -1))


def _worth(parts: Learning, params: ArrayTree, steps: Transition) -> Array:
    """What the rule says `next_obs` is worth by these parameters, on average."""
    # An estimate is given no key. Where something has to be drawn it is the same thing
    # each time; where actions can be counted, nothing has to.
    ask = _ask(parts, params, params, steps, jax.random.key(_FIXED))
    if isinstance(parts.space, gymnasium.spaces.Discrete):
        ask = ask._replace(drawn=lambda: expected(ask))
    return value(parts.rule(ask))


def expected(ask: Ask) -> Particles:
    """What follows an action of the policy, whichever it is: `[T, B, 1, A · K]`."""
    every = ask.every()
    both = mixed(every, ask.policy(every.mean()))
    return jax.tree.map(lambda leaf: leaf[..., None, :], both)
