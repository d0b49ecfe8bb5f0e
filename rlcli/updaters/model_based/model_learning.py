"""Model-based learning: values of states, and actions by looking one step ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import optax

from rlcli.errors import RlcliError
from rlcli.networks.predictions import (
    LOSSES,
    Loss,
    Particles,
    Transform,
    Transforms,
    least,
    picked,
    transform,
)
from rlcli.policies import Values
from rlcli.registry import register
from rlcli.types import (
    Array,
    ArrayTree,
    Clock,
    Count,
    Environment,
    Estimates,
    Key,
    Network,
    Params,
    Policy,
    Report,
    Transition,
    Updater,
)
from rlcli.updaters import Spaces, discrete
from rlcli.updaters.critics import Backup, Critic, bootstrapped, regression, states
from rlcli.updaters.learner import Learner, Losses, Target, learner
from rlcli.updaters.model_based.transition_models import Model, known, learnt, successor
from rlcli.xla.indexing import selected

Backups = Literal["best", "sample"]
_FACTS = {
    "policy": "epsilon_greedy",
    "tracer": "n_step",
    "replay": "uniform",
    "unroll": 1,
}


@register("updater", **_FACTS)
def model_learning(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    stochastic: bool = False,
    samples: Count = 16,
    backup: Backups = "best",
    target: Target | None = None,
    loss: Loss = "huber",
    transform: Transforms | None = None,
) -> Updater:
    """Learns what actions lead to, what states are worth, and acts by both.

        q(s, a) = r(s, a) + γ c(s, a) Σ p(s′|s, a) v(s′)

    as in coax's model-based CartPole. Four functions learn at once: `value` v, and of
    observation and action `transition` p (the distribution of s′ if the episode goes
    on), `reward` r (the mean) and `continuation` c (how likely the episode goes on, so
    that endings are foretold, too). Of rows of n steps the model says what follows
    after n, and γ is the tracer's, to the power of n.
    v learns by `backup` (Sutton & Barto, 2018, §8.5,
    http://incompleteideas.net/book/the-book-2nd.html)

        best      y = max q⁻(s, ·), by the model: whoever gathered the data
        sample    y = R + I v⁻(s′), as it went: what the policy that played is worth

    Observations are a Box or choices. Not `stochastic`: p is looked at where it is
    greatest, and over a Box of floats `transition` gives s′ − s. `stochastic`: p and r
    have scales of their own; v is averaged over all s′ that can be counted, else over
    so many `samples`, which are the same for every action.
    """
    actions = discrete(spaces, "model_learning")
    if spaces.span is None:
        raise RlcliError(
            "updater `model_learning` foretells what so many steps lead to, and the "
            "tracer's rows are of whole episodes",
            "`tracer: n_step` has rows of `n` steps",
        )
    model = learnt(
        networks,
        spaces.observation,
        actions,
        gamma=spaces.gamma**spaces.span,
        stochastic=stochastic,
        samples=samples,
    )
    settings = Settings(backup, target, loss, transform)
    return _looking_ahead(model, settings, actions, networks, policies, optimizer)


@register("updater", **_FACTS)
def model_known(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    samples: Count = 16,
    backup: Backups = "best",
    target: Target | None = None,
    loss: Loss = "huber",
    transform: Transforms | None = None,
) -> Updater:
    """Learns what states are worth, and acts by the rules of the environment itself.

        q(s, a) = E[R + γ v(s′)],  (s′, R) = step(s, a), and no v(s′) at an end

    `model_learning` with nothing to learn but `value`, whose `backup`s are the same;
    γ is the tracer's. Where the environment draws noise it is stepped so many `samples`
    times. It goes on from the state that the wrapper `expose_state` shows, the last in
    `wrappers`; a network sees the observation alone by `preprocess: [{name: member, of:
    observation}]`.
    """
    actions = discrete(spaces, "model_known")
    model = known(_rules(spaces), spaces.gamma, samples)
    settings = Settings(backup, target, loss, transform)
    return _looking_ahead(model, settings, actions, networks, policies, optimizer)


class Settings(NamedTuple):
    """How values of states are learnt."""

    backup: Backups
    target: Target | None
    loss: Loss
    transform: Transforms | None


class Parts(NamedTuple):
    """What backups are made of."""

    model: Model
    critic: Critic
    q: Callable[..., Particles]
    scale: Transform


def _rules(spaces: Spaces) -> Environment:
    """The environment itself, if its state is seen."""
    rules, shown = spaces.rules(), spaces.observation
    if rules is None:
        raise RlcliError(
            f"updater `model_known` goes by the rules of {spaces.whose}, which cannot "
            "be asked",
            "they can where it runs in the compiled program, all of it is alike (no "
            "`each`), and what it shows is seen as it is (no `normalize`, no frames); "
            "`model_learning` learns them",
        )
    if not isinstance(shown, gymnasium.spaces.Dict) or "state" not in shown.spaces:
        raise RlcliError(
            f"updater `model_known` goes on from the state of {spaces.whose}, which "
            "is not seen",
            "`wrappers: [expose_state]` shows it",
        )
    return rules


def _looking_ahead(
    model: Model,
    settings: Settings,
    actions: gymnasium.spaces.Discrete,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
) -> Updater:
    """The updater that acts on the values of what may follow."""
    target, scale = settings.target, transform(settings.transform)
    critic = states(networks, "value")
    parts = Parts(model, critic, successor(model, critic, actions, scale), scale)
    goal_of = {"best": _best, "sample": _sample}[settings.backup]

    def init(key: Key) -> Params:
        return {**critic.init(key), **model.init(key)}

    def values(params, key, obs, carry, first):
        del key  # the same each time: what an action is worth is no noise
        return parts.q("act", params, None, obs, first).mean(), carry

    looking = Network(init, values, lambda batch: ())
    policy = policies(values=Values(looking), space=actions)
    begin, step = learner(init, optimizer, target)

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        here, there = jax.random.split(key)
        follower = state.params if target is None else state.target
        goal = goal_of(parts, follower, there, batch)

        def losses(params: Params) -> Losses:
            asked = (here, batch.obs, batch.action, batch.first)
            found = critic.taken("learn", params, *asked)
            of_value = regression(found, goal, LOSSES[settings.loss], scale)
            errors = model.errors(params, batch)
            return of_value._replace(
                terms={**of_value.terms, **errors},
                metrics={**of_value.metrics, **errors},
            )

        state, priority, metrics = step(state, losses, weight, clock)
        return state, Report(priority, metrics)

    def worth(params: Params, obs: ArrayTree, first: Array) -> Array:
        found = critic.taken("act", params, None, obs, None, first)
        return least(found.particles(scale)).mean()

    def estimate(state: Learner, steps: Transition) -> Estimates:
        params, first = state.params, steps.first
        q = parts.q("act", params, None, steps.obs, first).mean()
        return Estimates(
            v_tm1=worth(params, steps.obs, first),
            v_t=worth(params, steps.next_obs, first),
            log_prob=policy.log_prob(q, steps.action),
            q_tm1=selected(q, steps.action - int(actions.start)),
        )

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=policy,
        update=update,
        estimate=estimate,
        failed=lambda state: state.failed,
    )


def _best(parts: Parts, params: Params, key: Key, rows: Transition) -> Particles:
    """What follows the best action, by the model."""
    every = parts.q("bootstrap", params, key, rows.obs, rows.first)
    return picked(every, jnp.argmax(every.mean(), axis=-1))


def _sample(parts: Parts, params: Params, key: Key, rows: Transition) -> Particles:
    """What followed."""
    asked = (key, rows.next_obs, rows.first)
    found = parts.critic.every("bootstrap", params, *asked)
    return bootstrapped(rows, Backup(least(found.particles(parts.scale))))
