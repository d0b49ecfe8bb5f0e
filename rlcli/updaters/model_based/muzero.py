"""MuZero: planning with a learned latent model."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float, Int, Num

from rlcli.distributions import action_masks
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
    Count,
    Estimates,
    Key,
    Network,
    NonNegative,
    Params,
    Report,
    Transition,
    Updater,
    UpdaterTraits,
)
from rlcli.updaters import Networks, Parts, require_discrete
from rlcli.updaters.learner import Losses, Target, Term, learner


class UnrollTargets(NamedTuple):
    """Targets of a model unrolled for K steps, `[K + 1, S, B]`; index 0 is the start.

    Unknown targets have weight 0: the policy after the end of an episode, and all
    targets after a truncation.
    """

    action: Int[Array, "*steps S B"]  # the action taken at this step
    policy: Float[Array, "*steps S B A"]  # action weights of the search
    value: Float[Array, "*steps S B"]
    # The reward on arrival at this step; none at index 0.
    reward: Float[Array, "*steps S B"]
    policy_weight: Num[Array, "*steps S B"]
    value_weight: Num[Array, "*steps S B"]
    reward_weight: Num[Array, "*steps S B"]


class MuZeroNetworks(NamedTuple):
    """The networks of a MuZero model, for arrays with any leading axes."""

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
    parts: Parts,
    *,
    size: Count = 64,
    steps: Count = 5,
    value_weight: NonNegative = 0.25,
    reward_weight: NonNegative = 1.0,
    target: Target | None = None,
    loss: Loss = "mse",
    transform_: TransformName | None = "signed_hyperbolic",
) -> Updater:
    """MuZero: learns a latent model of rewards, values and policies, and plans with it.

        s⁰ = h(oₜ)        rᵏ, sᵏ = g(sᵏ⁻¹, aₜ₊ₖ₋₁)        pᵏ, vᵏ = f(sᵏ)
        ℓᵏ = H(π′ₜ₊ₖ, pᵏ) + w_v L(zₜ₊ₖ, vᵏ) + w_r L(rₜ₊ₖ, rᵏ)
        ℓ = ℓ⁰ + (1 / K) Σ ℓᵏ,  k = 1 … K

    h is the network `representation`, g `dynamics` and f `prediction`. Hidden states
    have `size` entries in [0, 1]; K is `steps`. The policy searches with the model. The
    targets are the search policy π′ and the value z = R + I ν(s′) of the tracer's row,
    where ν is the root value of the search, or v of `next_obs` where a time limit
    truncates the episode. A row of a replay keeps the ν of the time of acting; with
    `target`, ν is v of the target parameters instead, as in MuZero Reanalyze, but
    without another search. A terminated episode continues with zero rewards; steps
    after a truncation are not learned. The gradient through each g is halved. The heads
    of `dynamics` and `prediction` learn rewards and values, with `loss` and `transform`
    as in TD updaters. Importance weights scale all of ℓ. An action mask is known at the
    root of the search only: there, illegal actions have no prior and π′ = 0. H compares
    with all actions, so p learns not to predict them, which is all that keeps the
    search from them below the root. The networks use no noise; the search adds its own.
    (Schrittwieser et al., 2020, https://arxiv.org/abs/1911.08265; Danihelka et al.,
    2022, https://openreview.net/forum?id=bERaNdoegnO; needs the extra `muzero`.)
    """
    actions = require_discrete(parts.spaces, "muzero")
    transform = value_transform(transform_)
    model = _build_networks(parts.networks, actions, size)
    planning_model = _planning_model(model, transform, actions)
    policy = parts.policies(model=planning_model)
    policy = policy._replace(
        inspection=policy.inspection._replace(
            value=lambda params, obs, state, first: (
                planning_model.root(params, obs).value
            )
        )
    )
    init, step = learner(model.init, parts.optimizer, target)
    loss_function = functools.partial(
        muzero_losses, model, LOSSES[loss], transform, (value_weight, reward_weight)
    )

    def update(state, batch, weight, clock, key):
        del key  # nothing is sampled
        if target is not None:
            root = planning_model.root(state.target, batch.next_obs)
            carry = {**batch.extras["next_carry"], "value": root.value}
            batch = batch._replace(extras={**batch.extras, "next_carry": carry})
        targets = unroll_targets(batch, steps)
        starts = targets.value.shape[1]
        obs = jax.tree.map(lambda leaf: leaf[:starts], batch.obs)
        loss = functools.partial(loss_function, obs=obs, targets=targets)
        state, priority, metrics = step(state, loss, weight[:starts], clock)
        return state, Report(priority, metrics)

    def estimate(state, rows, key):
        del key  # nothing is sampled
        root_value = rows.extras["root_value"]
        logits = planning_model.root(state.params, rows.obs).logits
        # The value of `next_obs` is the search's root value of the next step. At the
        # end of an episode and of the steps there is none: it is the model's.
        model_value = planning_model.root(state.params, rows.next_obs).value
        next_root_value = jnp.concatenate([root_value[1:], model_value[-1:]])
        next_value = jnp.where(rows.last, model_value, next_root_value)
        return Estimates(
            v_tm1=root_value,
            v_t=next_value,
            log_prob=policy.log_prob(logits, rows.action),
            q_tm1=root_value,
            # Knowledge about `next_obs`, which tracers move together with `next_obs`.
            carry={"value": next_value, "terminated": rows.discount == 0},
        )

    return Updater(
        init=init,
        policy=policy,
        update=update,
        estimate=estimate,
        traits=UpdaterTraits(
            is_data_parallel=True,
            requires=("action_weights", "root_value"),
            # The last target bootstraps from the root value of the next row.
            sequence_length=steps + 2,
        ),
    )


def unroll_targets(rows: Transition, steps: int) -> UnrollTargets:
    """The model targets for `steps` steps from each of the first S rows of `[T, B]`.

    S = T − `steps` − 1: the last row may lack its bootstrap value.
    """
    starts = rows.reward.shape[0] - steps - 1
    if starts < 1:
        raise RlcliError(
            f"updater `muzero` unrolls its model for {steps} steps, which needs "
            f"{steps + 2} consecutive rows, but there are {rows.reward.shape[0]}",
            "raise `train.unroll`, or use a `replay`",
        )

    def stack_offsets(leaf: Array) -> jax.Array:
        return jnp.stack([leaf[k : k + starts] for k in range(steps + 1)])

    def shift(leaf: Array) -> Array:
        """The values of the previous step; zeros at the first."""
        return jnp.concatenate([jnp.zeros_like(leaf[:1]), leaf[:-1]])

    next_carry = rows.extras["next_carry"]
    begins = stack_offsets(rows.first).at[0].set(False)  # a later episode begins
    has_ended = jnp.cumsum(begins, axis=0) > 0
    first_end = begins & ~shift(has_ended)
    is_terminal = first_end & shift(stack_offsets(next_carry["terminated"]))
    is_known = ~has_ended | (jnp.cumsum(is_terminal, axis=0) > 0)
    value = stack_offsets(rows.reward + rows.discount * next_carry["value"])
    reward = shift(stack_offsets(rows.extras["reward"]))
    has_reward = jnp.ones_like(is_known).at[0].set(False)
    return UnrollTargets(
        action=stack_offsets(rows.action),
        policy=stack_offsets(rows.extras["action_weights"]),
        value=jnp.where(has_ended, 0.0, value),
        reward=jnp.where(shift(has_ended), 0.0, reward),
        policy_weight=(~has_ended).astype(jnp.float32),
        value_weight=is_known.astype(jnp.float32),
        reward_weight=(shift(is_known) & has_reward).astype(jnp.float32),
    )


def muzero_losses(
    model: MuZeroNetworks,
    loss: Callable[[Array], Array],
    transform: Transform,
    weights: tuple[Array | float, Array | float],
    params: Params,
    obs: ArrayTree,
    targets: UnrollTargets,
) -> Losses:
    """The loss of the model unrolled along the actions from each start, `[S, B]`."""
    steps = targets.value.shape[0] - 1

    def prediction_losses(
        hidden: Array, target: UnrollTargets
    ) -> tuple[Array, Array, Prediction]:
        prediction = model.predict(params, hidden)
        policy = optax.softmax_cross_entropy(prediction.logits, target.policy)
        value = prediction.value.loss(_point_mass(target.value), loss, transform)
        return (
            target.policy_weight * policy,
            target.value_weight * value,
            prediction.value,
        )

    def scan_step(
        hidden: Array, step_targets: tuple[Array, UnrollTargets]
    ) -> tuple[Array, tuple]:
        action, target = step_targets
        output = model.dynamics(params, _halve_gradient(hidden), action)
        reward = output.reward.loss(_point_mass(target.reward), loss, transform)
        policy, value, _ = prediction_losses(output.hidden, target)
        return output.hidden, (policy, value, target.reward_weight * reward)

    hidden = model.represent(params, obs)
    policy, value, root = prediction_losses(
        hidden, jax.tree.map(lambda leaf: leaf[0], targets)
    )
    rest = jax.tree.map(lambda leaf: leaf[1:], targets)
    _, terms_by_step = jax.lax.scan(scan_step, hidden, (targets.action[:-1], rest))
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
    error = jnp.abs(root.error(_point_mass(targets.value[0]), transform))
    priority = error[0] if error.shape[0] == 1 else error
    row_metrics = {
        **terms,
        "td_error": error,
        "value": _expected_value(root, transform),
    }
    inputs = {"target": targets.value[0], "target_reward": targets.reward[-1]}
    return Losses([Term(total, is_weighted=True)], priority, row_metrics, inputs=inputs)


def _build_networks(
    networks: Networks, actions: gymnasium.spaces.Discrete, size: int
) -> MuZeroNetworks:
    """Builds the model from the recipe's networks."""
    state = gymnasium.spaces.Box(0.0, 1.0, (size,), np.float32)
    represent = networks("representation", functools.partial(hidden_state_head, size))
    dynamics = networks(
        "dynamics",
        functools.partial(dynamics_head, size),
        observation=state,
        action=actions,
    )
    heads = functools.partial(prediction_head, int(actions.n))
    prediction = networks("prediction", heads, observation=state)
    if any(is_recurrent(network) for network in (represent, dynamics, prediction)):
        raise RlcliError(
            "updater `muzero` does not support recurrent networks",
            "remove `memory`; use `preprocess: [{name: frame_stack}]` instead",
        )

    def apply_fn(network: Network) -> Callable[[Params, ArrayTree], ArrayTree]:
        return lambda params, inputs: network.apply(params, None, inputs, (), None)[0]

    def init(key: Key) -> Params:
        return {**represent.init(key), **dynamics.init(key), **prediction.init(key)}

    return MuZeroNetworks(
        represent=apply_fn(represent),
        dynamics=lambda params, hidden, action: apply_fn(dynamics)(
            params, (hidden, action)
        ),
        predict=apply_fn(prediction),
        init=init,
    )


def _planning_model(
    model: MuZeroNetworks, transform: Transform, actions: gymnasium.spaces.Discrete
) -> PlanningModel:
    """The model for planning policies: predictions reduced to scalars."""

    def search_state(params: Params, hidden: Array) -> SearchState:
        logits, value = model.predict(params, hidden)
        return SearchState(hidden, logits, _expected_value(value, transform))

    def root(params: Params, obs: ArrayTree) -> SearchState:
        state = search_state(params, model.represent(params, obs))
        if action_masks.get_mask(obs) is None:
            return state
        legal = action_masks.allowed_actions(obs)
        return state._replace(logits=action_masks.mask_outputs(state.logits, legal))

    def predict(
        params: Params, hidden: Array, action: Array
    ) -> tuple[Array, SearchState]:
        after, reward = model.dynamics(params, hidden, action)
        return _expected_value(reward, transform), search_state(params, after)

    return PlanningModel(root, predict, actions)


def _expected_value(prediction: Prediction, transform: Transform) -> Array:
    """The expected value of a prediction, `[...]`: h⁻¹(E[Z]).

    It inverts the projection of one target h(y) onto two atoms exactly.
    """
    return transform.inverse(prediction.particles().mean())


def _point_mass(value: Array) -> Particles:
    """A target distribution with all mass at `value`, `[...]`."""
    return Particles(value[..., None], jnp.ones_like(value)[..., None])


def _halve_gradient(hidden: Array) -> Array:
    """Returns `hidden` with half of its gradient."""
    return hidden / 2 + jax.lax.stop_gradient(hidden) / 2
