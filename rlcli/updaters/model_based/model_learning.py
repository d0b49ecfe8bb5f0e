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
    TransformName,
    index_actions,
    min_over_critics,
    value_transform,
)
from rlcli.policies import ValuesOffer
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
from rlcli.updaters import Spaces, require_discrete
from rlcli.updaters.critics import (
    Backup,
    Critic,
    bootstrap_target,
    regression_losses,
    state_critic,
)
from rlcli.updaters.learner import Learner, Losses, Target, learner
from rlcli.updaters.model_based.transition_models import (
    TransitionModel,
    known_model,
    learned_model,
    model_action_values,
)
from rlcli.xla.indexing import select_index

BackupName = Literal["best", "sample"]
_DEFAULTS = {
    "policy": "epsilon_greedy",
    "tracer": "n_step",
    "replay": "uniform",
    "unroll": 1,
}


@register("updater", **_DEFAULTS)
def model_learning(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    stochastic: bool = False,
    samples: Count = 16,
    backup: BackupName = "best",
    target: Target | None = None,
    loss: Loss = "huber",
    transform: TransformName | None = None,
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
    actions = require_discrete(spaces, "model_learning")
    if spaces.span is None:
        raise RlcliError(
            "updater `model_learning` foretells what so many steps lead to, and the "
            "tracer's rows are of whole episodes",
            "`tracer: n_step` has rows of `n` steps",
        )
    model = learned_model(
        networks,
        spaces.observation,
        actions,
        gamma=spaces.gamma**spaces.span,
        stochastic=stochastic,
        samples=samples,
    )
    settings = ModelLearningOptions(backup, target, loss, transform)
    return _lookahead_updater(model, settings, actions, networks, policies, optimizer)


@register("updater", **_DEFAULTS)
def model_known(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    samples: Count = 16,
    backup: BackupName = "best",
    target: Target | None = None,
    loss: Loss = "huber",
    transform: TransformName | None = None,
) -> Updater:
    """Learns what states are worth, and acts by the rules of the environment itself.

        q(s, a) = E[R + γ v(s′)],  (s′, R) = step(s, a), and no v(s′) at an end

    `model_learning` with nothing to learn but `value`, whose `backup`s are the same;
    γ is the tracer's. Where the environment draws noise it is stepped so many `samples`
    times. It goes on from the state that the wrapper `expose_state` shows, the last in
    `wrappers`; a network sees the observation alone by `preprocess: [{name: member, of:
    observation}]`.
    """
    actions = require_discrete(spaces, "model_known")
    model = known_model(_require_simulator(spaces), spaces.gamma, samples)
    settings = ModelLearningOptions(backup, target, loss, transform)
    return _lookahead_updater(model, settings, actions, networks, policies, optimizer)


class ModelLearningOptions(NamedTuple):
    """How values of states are learnt."""

    backup: BackupName
    target: Target | None
    loss: Loss
    transform: TransformName | None


class ModelLearningParts(NamedTuple):
    """What backups are made of."""

    model: TransitionModel
    critic: Critic
    q: Callable[..., Particles]
    scale: Transform


def _require_simulator(spaces: Spaces) -> Environment:
    """The environment itself, if its state is seen."""
    rules, observation = spaces.simulator(), spaces.observation
    if rules is None:
        raise RlcliError(
            f"updater `model_known` goes by the rules of {spaces.owner}, which cannot "
            "be asked",
            "they can where it runs in the compiled program, all of it is alike (no "
            "`each`), and what it shows is seen as it is (no `normalize`, no frames); "
            "`model_learning` learns them",
        )
    if (
        not isinstance(observation, gymnasium.spaces.Dict)
        or "state" not in observation.spaces
    ):
        raise RlcliError(
            f"updater `model_known` goes on from the state of {spaces.owner}, which "
            "is not seen",
            "`wrappers: [expose_state]` shows it",
        )
    return rules


def _lookahead_updater(
    model: TransitionModel,
    settings: ModelLearningOptions,
    actions: gymnasium.spaces.Discrete,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
) -> Updater:
    """The updater that acts on the values of what may follow."""
    target, scale = settings.target, value_transform(settings.transform)
    critic = state_critic(networks, "value")
    parts = ModelLearningParts(
        model, critic, model_action_values(model, critic, actions, scale), scale
    )
    goal_of = {"best": _best_target, "sample": _sample_target}[settings.backup]

    def init(key: Key) -> Params:
        return {**critic.init(key), **model.init(key)}

    def values(params, key, obs, carry, first):
        del key  # the same each time: what an action is worth is no noise
        return parts.q("act", params, None, obs, first).mean(), carry

    looking = Network(init, values, lambda batch: ())
    policy = policies(values=ValuesOffer(looking), space=actions)
    begin, step = learner(init, optimizer, target)

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        learn_key, target_key = jax.random.split(key)
        target_params = state.params if target is None else state.target
        goal = goal_of(parts, target_params, target_key, batch)

        def losses(params: Params) -> Losses:
            inputs = (learn_key, batch.obs, batch.action, batch.first)
            prediction = critic.predict_action("learn", params, *inputs)
            of_value = regression_losses(prediction, goal, LOSSES[settings.loss], scale)
            errors = model.losses(params, batch)
            return of_value._replace(
                terms={**of_value.terms, **errors},
                metrics={**of_value.metrics, **errors},
            )

        state, priority, metrics = step(state, losses, weight, clock)
        return state, Report(priority, metrics)

    def worth(params: Params, obs: ArrayTree, first: Array) -> Array:
        prediction = critic.predict_action("act", params, None, obs, None, first)
        return min_over_critics(prediction.particles(scale)).mean()

    def estimate(state: Learner, steps: Transition) -> Estimates:
        params, first = state.params, steps.first
        q = parts.q("act", params, None, steps.obs, first).mean()
        return Estimates(
            v_tm1=worth(params, steps.obs, first),
            v_t=worth(params, steps.next_obs, first),
            log_prob=policy.log_prob(q, steps.action),
            q_tm1=select_index(q, steps.action - int(actions.start)),
        )

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=policy,
        update=update,
        estimate=estimate,
        failed_at=lambda state: state.failed,
    )


def _best_target(
    parts: ModelLearningParts, params: Params, key: Key, rows: Transition
) -> Particles:
    """What follows the best action, by the model."""
    q_values = parts.q("bootstrap", params, key, rows.obs, rows.first)
    return index_actions(q_values, jnp.argmax(q_values.mean(), axis=-1))


def _sample_target(
    parts: ModelLearningParts, params: Params, key: Key, rows: Transition
) -> Particles:
    """What followed."""
    inputs = (key, rows.next_obs, rows.first)
    prediction = parts.critic.predict_all_actions("bootstrap", params, *inputs)
    return bootstrap_target(
        rows, Backup(min_over_critics(prediction.particles(parts.scale)))
    )
