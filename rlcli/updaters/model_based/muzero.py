"""MuZero: a model that is learnt for nothing but to be planned with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rlcli.errors import RlcliError
from rlcli.networks.heads import (
    DynamicsOutput,
    PredictionOutput,
    dynamics_head,
    hidden_state_head,
    prediction_head,
)
from rlcli.networks.memory import is_recurrent
from rlcli.networks.predictions import (
    LOSSES,
    Loss,
    Particles,
    Prediction,
    Transform,
    TransformName,
    value_transform,
)
from rlcli.policies import PlanningModel, SearchState
from rlcli.registry import register
from rlcli.types import (
    Array,
    ArrayTree,
    Clock,
    Count,
    Estimates,
    Key,
    Network,
    NonNegative,
    Params,
    Policy,
    Report,
    Transition,
    Updater,
)
from rlcli.updaters import Spaces, require_discrete
from rlcli.updaters.learner import Learner, Losses, learner


class UnrollTargets(NamedTuple):
    """What a model is to say along K steps, `[K + 1, S, B]`; its 0 is where they begin.

    What weighs 0 is not known: what a policy would do once an episode has ended, and
    anything behind a time limit.
    """

    action: Array  # that leads on from there
    policy: Array  # `[K + 1, S, B, A]`: what the search made of it
    value: Array
    reward: Array  # on the way there; at 0 there is none
    policy_weight: Array
    value_weight: Array
    reward_weight: Array


class MuZeroNetworks(NamedTuple):
    """What a model is made of, of arrays with any axes in front."""

    represent: Callable[[Params, ArrayTree], Array]  # params, obs -> hidden
    dynamics: Callable[[Params, Array, Array], DynamicsOutput]  # params, hidden, action
    predict: Callable[[Params, Array], PredictionOutput]  # params, hidden
    init: Callable[[Key], Params]


@register(
    "updater",
    policy="gumbel_muzero",
    tracer={"name": "n_step", "n": 5, "gamma": 0.99},
    replay="uniform",
    extra="muzero",
)
def muzero(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    size: Count = 64,
    steps: Count = 5,
    value_weight: NonNegative = 0.25,
    reward_weight: NonNegative = 1.0,
    loss: Loss = "mse",
    transform_: TransformName | None = "signed_hyperbolic",
) -> Updater:
    """Learns a model of rewards, values and policies, and plans with it.

        s⁰ = h(oₜ)        rᵏ, sᵏ = g(sᵏ⁻¹, aₜ₊ₖ₋₁)        pᵏ, vᵏ = f(sᵏ)
        ℓᵏ = H(π′ₜ₊ₖ, pᵏ) + w_v L(zₜ₊ₖ, vᵏ) + w_r L(rₜ₊ₖ, rᵏ)
        ℓ = ℓ⁰ + (1 / K) Σ ℓᵏ,  k = 1 … K

    h is the network `representation`, g `dynamics` and f `prediction`; hidden states
    have `size` numbers from 0 to 1, K is `steps`. The policy searches with the model,
    and what it keeps is learnt: π′, and the value z = R + I ν(s′) of the tracer's row,
    where ν is the value that the search found, or v of `next_obs` where a time limit
    cut the episode. A terminated one goes on without rewards; what would follow upon a
    cut is not learnt. The gradient through each g is halved. Rewards and values are
    learnt by the heads of `dynamics` and `prediction`, `loss` and `transform` as for
    temporal differences; an importance weight is one of all of ℓ. Without noise in the
    networks: the search brings its own. (Schrittwieser et al., 2020,
    https://arxiv.org/abs/1911.08265; Danihelka et al., 2022,
    https://openreview.net/forum?id=bERaNdoegnO; needs the extra `muzero`.)
    """
    actions = require_discrete(spaces, "muzero")
    scale = value_transform(transform_)
    model = _build_networks(networks, actions, size)
    policy = policies(model=_planning_model(model, scale, actions))
    begin, step = learner(model.init, optimizer)
    losses_of = functools.partial(
        muzero_losses, model, LOSSES[loss], scale, (value_weight, reward_weight)
    )

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        del key  # nothing is drawn
        goals = unroll_targets(batch, steps)
        starts = goals.value.shape[1]
        obs = jax.tree.map(lambda leaf: leaf[:starts], batch.obs)
        loss = functools.partial(losses_of, obs=obs, goals=goals)
        state, priority, metrics = step(state, loss, weight[:starts], clock)
        return state, Report(priority, metrics)

    def estimate(state: Learner, rows: Transition) -> Estimates:
        root_value = rows.extras["root_value"]
        logits = model.predict(state.params, model.represent(state.params, rows.obs))[0]
        next_prediction = model.predict(
            state.params, model.represent(state.params, rows.next_obs)
        )
        next_value = next_values(rows, _expected_value(next_prediction.value, scale))
        return Estimates(
            v_tm1=root_value,
            v_t=next_value,
            log_prob=policy.log_prob(logits, rows.action),
            q_tm1=root_value,
            # What is known of `next_obs`: tracers move it along with it.
            carry={"value": next_value, "terminated": rows.discount == 0},
        )

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=policy,
        update=update,
        estimate=estimate,
        failed_at=lambda state: state.failed,
        requires=("action_weights", "root_value"),
        rows=steps + 2,  # so that the search has seen what the last of them bootstraps
    )


def next_values(rows: Transition, model_value: Array) -> Array:
    """What `next_obs` of steps `[T, B]` is worth by the search, `[T, B]`.

    The next step's root value; `model_value`, the model's, where no step follows upon
    it: at the end of an episode, and of the steps.
    """
    next_root_value = jnp.concatenate([rows.extras["root_value"][1:], model_value[-1:]])
    return jnp.where(rows.last, model_value, next_root_value)


def unroll_targets(rows: Transition, steps: int) -> UnrollTargets:
    """What is to be said along `steps` steps from each of S rows of `[T, B]`.

    S = T − `steps` − 1: the last row may lack what it bootstraps from.
    """
    starts = rows.reward.shape[0] - steps - 1
    if starts < 1:
        raise RlcliError(
            f"updater `muzero` follows its model for {steps} steps, and there are "
            f"{rows.reward.shape[0]} rows in a row where that takes {steps + 2}",
            "make `train.unroll` longer, or bring a `replay`",
        )

    def along(leaf: Array) -> Array:
        return jnp.stack([leaf[k : k + starts] for k in range(steps + 1)])

    def shift(leaf: Array) -> Array:
        """The same of one step earlier; of nothing at first."""
        return jnp.concatenate([jnp.zeros_like(leaf[:1]), leaf[:-1]])

    next_carry = rows.extras["next_carry"]
    begins = along(rows.first).at[0].set(False)  # another episode, on the way
    has_ended = jnp.cumsum(begins, axis=0) > 0
    first_end = begins & ~shift(has_ended)
    is_terminal = first_end & shift(along(next_carry["terminated"]))
    is_known = ~has_ended | (jnp.cumsum(is_terminal, axis=0) > 0)
    value = along(rows.reward + rows.discount * next_carry["value"])
    reward = shift(along(rows.extras["reward"]))
    has_reward = jnp.ones_like(is_known).at[0].set(False)
    return UnrollTargets(
        action=along(rows.action),
        policy=along(rows.extras["action_weights"]),
        value=jnp.where(has_ended, 0.0, value),
        reward=jnp.where(shift(has_ended), 0.0, reward),
        policy_weight=(~has_ended).astype(jnp.float32),
        value_weight=is_known.astype(jnp.float32),
        reward_weight=(shift(is_known) & has_reward).astype(jnp.float32),
    )


def muzero_losses(
    model: MuZeroNetworks,
    loss: Callable[[Array], Array],
    scale: Transform,
    weights: tuple[Array | float, Array | float],
    params: Params,
    obs: ArrayTree,
    goals: UnrollTargets,
) -> Losses:
    """The loss of each beginning `[S, B]`: of the model followed along its actions."""
    steps = goals.value.shape[0] - 1

    def prediction_losses(
        hidden: Array, goal: UnrollTargets
    ) -> tuple[Array, Array, Prediction]:
        prediction = model.predict(params, hidden)
        policy = optax.softmax_cross_entropy(prediction.logits, goal.policy)
        value = prediction.value.loss(_point_mass(goal.value), loss, scale)
        return goal.policy_weight * policy, goal.value_weight * value, prediction.value

    def scan_step(
        hidden: Array, step_targets: tuple[Array, UnrollTargets]
    ) -> tuple[Array, tuple]:
        action, goal = step_targets
        output = model.dynamics(params, _halve_gradient(hidden), action)
        reward = output.reward.loss(_point_mass(goal.reward), loss, scale)
        policy, value, _ = prediction_losses(output.hidden, goal)
        return output.hidden, (policy, value, goal.reward_weight * reward)

    hidden = model.represent(params, obs)
    policy, value, root = prediction_losses(
        hidden, jax.tree.map(lambda leaf: leaf[0], goals)
    )
    rest = jax.tree.map(lambda leaf: leaf[1:], goals)
    _, terms_by_step = jax.lax.scan(scan_step, hidden, (goals.action[:-1], rest))
    step_means = [jnp.sum(term, axis=0) / steps for term in terms_by_step]
    terms = {
        "policy_loss": policy + step_means[0],
        "value_loss": value + step_means[1],
        "reward_loss": step_means[2],
    }
    total = (
        terms["policy_loss"]
        + weights[0] * terms["value_loss"]
        + weights[1] * terms["reward_loss"]
    )
    error = jnp.abs(root.error(_point_mass(goals.value[0]), scale))
    priority = error[0] if error.shape[0] == 1 else error
    metrics = {**terms, "td_error": error, "value": _expected_value(root, scale)}
    return Losses({"critic": total}, priority, metrics)


def _build_networks(
    networks: Callable[..., Network], actions: gymnasium.spaces.Discrete, size: int
) -> MuZeroNetworks:
    """The recipe's networks, as a model."""
    state = gymnasium.spaces.Box(0.0, 1.0, (size,), np.float32)
    represent = networks("representation", functools.partial(hidden_state_head, size))
    follow = networks(
        "dynamics",
        functools.partial(dynamics_head, size),
        observation=state,
        action=actions,
    )
    heads = functools.partial(prediction_head, int(actions.n))
    look = networks("prediction", heads, observation=state)
    if any(is_recurrent(network) for network in (represent, follow, look)):
        raise RlcliError(
            "updater `muzero` cannot plan with a network that has a memory",
            "leave out `memory`; `preprocess: [{name: frame_stack}]` remembers as well",
        )

    def apply_fn(network: Network) -> Callable[[Params, ArrayTree], ArrayTree]:
        return lambda params, inputs: network.apply(params, None, inputs, (), None)[0]

    def init(key: Key) -> Params:
        return {**represent.init(key), **follow.init(key), **look.init(key)}

    return MuZeroNetworks(
        represent=apply_fn(represent),
        dynamics=lambda params, hidden, action: apply_fn(follow)(
            params, (hidden, action)
        ),
        predict=apply_fn(look),
        init=init,
    )


def _planning_model(
    model: MuZeroNetworks, scale: Transform, actions: gymnasium.spaces.Discrete
) -> PlanningModel:
    """The model as policies plan with it: in numbers."""

    def search_state(params: Params, hidden: Array) -> SearchState:
        logits, value = model.predict(params, hidden)
        return SearchState(hidden, logits, _expected_value(value, scale))

    def root(params: Params, obs: ArrayTree) -> SearchState:
        return search_state(params, model.represent(params, obs))

    def predict(
        params: Params, hidden: Array, action: Array
    ) -> tuple[Array, SearchState]:
        after, reward = model.dynamics(params, hidden, action)
        return _expected_value(reward, scale), search_state(params, after)

    return PlanningModel(root, predict, actions)


def _expected_value(prediction: Prediction, scale: Transform) -> Array:
    """The number that a prediction stands for, `[...]`: h⁻¹(E[Z]).

    Of one target, h(y) dealt to two atoms, it makes y again.
    """
    return scale.inverse(prediction.particles().mean())


def _point_mass(value: Array) -> Particles:
    """A target that is one number, `[...]`."""
    return Particles(value[..., None], jnp.ones_like(value)[..., None])


def _halve_gradient(hidden: Array) -> Array:
    """The same, with half of the gradient."""
    return hidden / 2 + jax.lax.stop_gradient(hidden) / 2
