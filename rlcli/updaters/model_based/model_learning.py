"""Model-based value learning: state values and one-step lookahead."""

from typing import Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
from jaxtyping import Bool

from rlcli.errors import RlcliError
from rlcli.networks.predictions import (
    LOSSES,
    Loss,
    Particles,
    TransformName,
    index_actions,
    value_transform,
)
from rlcli.registry import register
from rlcli.types import (
    Array,
    ArrayTree,
    Core,
    Count,
    Estimates,
    Key,
    Network,
    Params,
    PerRow,
    Report,
    Tracer,
    Transition,
    Updater,
    UpdaterTraits,
)
from rlcli.updaters import Parts, Spaces, require_discrete
from rlcli.updaters.critics import (
    Backup,
    bootstrap_target,
    regression_losses,
    state_critic,
)
from rlcli.updaters.learner import Losses, Target, Term, learner
from rlcli.updaters.model_based.transition_models import (
    TransitionModel,
    known_model,
    learned_model,
    model_action_values,
)
from rlcli.updaters.value_policy import value_policy
from rlcli.xla.indexing import select_index

_DEFAULTS = {
    "policy": "epsilon_greedy",
    "tracer": "n_step",
    "replay": "uniform",
    "unroll": 1,
}


class LookaheadOptions(NamedTuple):
    """The options of every updater that acts by one-step lookahead."""

    backup: Literal["best", "sample"] = "best"
    target: Target | None = None
    loss: Loss = "huber"
    transform: TransformName | None = None


@register("updater", **_DEFAULTS)
def model_learning(
    parts: Parts,
    tracer: Tracer,
    *,
    stochastic: bool = False,
    samples: Count = 16,
    options: LookaheadOptions = LookaheadOptions(),
) -> Updater:
    """Learned model: fits transitions and state values, acts by one-step lookahead.

        q(s, a) = r(s, a) + γ c(s, a) Σ p(s′|s, a) v(s′)

    as in coax's model-based CartPole. Four functions are learned simultaneously:
    `value` v, and as functions of observation and action `transition` p (the
    distribution of s′ if the episode continues), `reward` r (the mean) and
    `continuation` c (the probability that the episode continues, so that termination is
    predicted as well). With n-step rows the model predicts n steps ahead, and γ is the
    tracer's to the power of n. `backup` selects the target of v (Sutton & Barto, 2018,
    §8.5, http://incompleteideas.net/book/the-book-2nd.html)

        best      y = max q⁻(s, ·), by the model: off-policy
        sample    y = R + I v⁻(s′), from the data: the value of the behavior policy

    Observations are a Box or discrete. Without `stochastic`, s′ is the mode of p, and
    over a Box of floats `transition` predicts s′ − s. With `stochastic`, p and r have
    learned scales, and v is averaged over all s′ if they are discrete, else over
    `samples`, which use the same noise for every action.
    """
    actions = require_discrete(parts.spaces, "model_learning")
    if tracer.window is None:
        raise RlcliError(
            "updater `model_learning` predicts a fixed number of steps ahead, but the "
            "tracer's rows are whole episodes",
            "use `tracer: n_step`, whose rows have `n` steps",
        )
    model = learned_model(
        parts.networks,
        parts.spaces.observation,
        actions,
        gamma=tracer.gamma**tracer.window,
        stochastic=stochastic,
        samples=samples,
    )
    return _lookahead_updater(model, options, actions, parts)


@register("updater", **_DEFAULTS)
def model_known(
    parts: Parts,
    tracer: Tracer,
    simulator: Core | None,
    *,
    samples: Count = 16,
    options: LookaheadOptions = LookaheadOptions(),
) -> Updater:
    """Known model: learns state values, acts by the environment's own transitions.

        q(s, a) = E[R + γ v(s′)],  (s′, R) = step(s, a), without v(s′) at termination

    Like `model_learning`, but learns only `value`, with the same `backup` options; γ is
    the tracer's. A stochastic environment is stepped `samples` times. The step starts
    from the state that the wrapper `expose_state`, the last in `wrappers`, adds to the
    observation. Use `preprocess: [{name: member, of: observation}]` to hide the state
    from the network.
    """
    actions = require_discrete(parts.spaces, "model_known")
    model = known_model(_require_state(parts.spaces, simulator), tracer.gamma, samples)
    return _lookahead_updater(model, options, actions, parts)


def _require_state(spaces: Spaces, simulator: Core | None) -> Core:
    """Returns the simulator of the environment if its state is observed."""
    if simulator is None:
        raise RlcliError(
            f"updater `model_known` needs a simulator of {spaces.owner}, which is not "
            "available",
            "use a compiled environment without `each`, `normalize` and frame "
            "stacking; or learn the model with `model_learning`",
        )
    observation = spaces.observation
    has_members = isinstance(observation, gymnasium.spaces.Dict)
    if not has_members or "state" not in observation.spaces:
        raise RlcliError(
            f"updater `model_known` needs the state of {spaces.owner}, which is not "
            "part of the observation",
            "set `wrappers: [expose_state]`",
        )
    return simulator


def _lookahead_updater(
    model: TransitionModel,
    options: LookaheadOptions,
    actions: gymnasium.spaces.Discrete,
    parts: Parts,
) -> Updater:
    """The updater that acts by one-step lookahead with a model."""
    has_target = options.target is not None
    transform = value_transform(options.transform)
    critic = state_critic(parts.networks, "value")
    action_values = model_action_values(model, critic, actions, transform)

    def init_params(key: Key) -> Params:
        return {**critic.init(key), **model.init(key)}

    def values(params, key, obs, carry, first):
        # All actions have the same noise, which does not disturb their comparison.
        return action_values("act", params, key, obs, first).mean(), carry

    lookahead = Network(init_params, values, lambda batch: ())
    policy = value_policy(lookahead, parts.policies, actions)
    init, step = learner(init_params, parts.optimizer, options.target)

    def best_target(params: Params, key: Key, rows: Transition) -> Particles:
        """The return of the best action, predicted by the model."""
        q_values = action_values("bootstrap", params, key, rows.obs, rows.first)
        return index_actions(q_values, jnp.argmax(q_values.mean(), axis=-1))

    def sample_target(params: Params, key: Key, rows: Transition) -> Particles:
        """The bootstrap target from the observed transition."""
        prediction = critic.predict_all_actions(
            "bootstrap", params, key, rows.next_obs, rows.first
        )
        bootstrap_value = prediction.particles(transform).min_over_critics()
        return bootstrap_target(rows, Backup(bootstrap_value))

    compute_target = {"best": best_target, "sample": sample_target}[options.backup]

    def update(state, batch, weight, clock, key):
        learn_key, target_key = jax.random.split(key)
        target_params = state.target if has_target else state.params
        value_target = compute_target(target_params, target_key, batch)

        def losses(params: Params) -> Losses:
            inputs = (learn_key, batch.obs, batch.action, batch.first)
            value_losses = regression_losses(
                critic.predict_action("learn", params, *inputs),
                value_target,
                LOSSES[options.loss],
                transform,
                metric=critic.metric,
            )
            model_losses = model.losses(params, batch)
            model_terms = [
                Term(loss, is_weighted=False, name=name)
                for name, loss in model_losses.items()
            ]
            return value_losses._replace(
                terms=[*value_losses.terms, *model_terms],
                row_metrics={**value_losses.row_metrics, **model_losses},
            )

        state, priority, metrics = step(state, losses, weight, clock)
        return state, Report(priority, metrics)

    def state_value(
        params: Params, obs: ArrayTree, first: Bool[Array, "T B"]
    ) -> PerRow:
        prediction = critic.predict_action("act", params, None, obs, None, first)
        return prediction.particles(transform).min_over_critics().mean()

    def estimate(state, steps, key):
        target_params = state.target if has_target else state.params
        first, action = steps.first, steps.action - int(actions.start)
        keys = jax.random.split(key)
        q = action_values("act", state.params, keys[0], steps.obs, first).mean()
        target_q = action_values("act", target_params, keys[1], steps.obs, first).mean()
        return Estimates(
            v_tm1=state_value(target_params, steps.obs, first),
            v_t=state_value(target_params, steps.next_obs, first),
            log_prob=policy.log_prob(q, steps.action),
            q_tm1=select_index(target_q, action),
        )

    return Updater(
        init=init,
        policy=policy,
        update=update,
        estimate=estimate,
        traits=UpdaterTraits(is_data_parallel=True),
    )
