"""Off-policy actor-critic: the shared core of DDPG, TD3 and SAC.

Critics with any return head learn action values q(s, a) from a replay, and the policy
maximizes them (Degris et al., 2012, https://arxiv.org/abs/1205.4839). The policy loss L
and the target y of the critics are

    L = Σ π(a|s) (τ log π(a|s) − q(s, a))    y = R + I Σ π(a′|s′) (z⁻ − τ log π(a′|s′))

where τ is the temperature (0 without an entropy bonus) and z⁻ the prediction of the
target critics at (s′, a′). Over Discrete actions the sum is exact; otherwise it is
estimated from one sampled action, and the gradient passes through the sample.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
from jaxtyping import Float

from rlcli.errors import RlcliError
from rlcli.networks.functions import SHARED
from rlcli.networks.memory import is_recurrent
from rlcli.networks.predictions import (
    LOSSES,
    Loss,
    Particles,
    Prediction,
    Transform,
    TransformName,
    average_quantiles,
    value_transform,
)
from rlcli.types import (
    Array,
    ArrayTree,
    Count,
    Estimates,
    Key,
    Params,
    PerRow,
    Report,
    Transition,
    Updater,
    UpdaterTraits,
)
from rlcli.updaters import Parts, refuse_recurrence
from rlcli.updaters.critics import (
    Backup,
    Critic,
    add_penalty,
    all_actions_critic,
    bootstrap_target,
    one_action_critic,
    regression_losses,
)
from rlcli.updaters.learner import Learner, Losses, Target, Term, learner, select_groups
from rlcli.updaters.off_policy.actors import ActionChoices, Actor, evaluate_choices
from rlcli.updaters.regularizers import POLICY_GROUPS, initial_groups, penalties

CriticReduction = Callable[[Particles], Particles]  # reduces C critics to one
PredictionFunction = Callable[[Params], tuple[Prediction, Particles, Params]]


def first_critic(particles: Particles) -> Particles:
    """The prediction of the first critic."""
    return jax.tree.map(lambda leaf: leaf[0], particles)


class Temperature(NamedTuple):
    """The temperature τ, the weight of the entropy bonus: reward per nat."""

    params: Params  # learned parameters; {} for a fixed temperature
    value: Callable[[Params], Float[Array, ""] | float]
    # outputs of the policy -> the entropy at which a learned temperature is stationary
    target_entropy: Callable[
        [Float[Array, "T B size"]], Float[Array, "..."] | float
    ] = lambda outputs: 0.0


ZERO_TEMPERATURE = Temperature({}, lambda params: 0.0)


class OffPolicyOptions(NamedTuple):
    """The options of an off-policy actor-critic."""

    critics: Count = 1
    target: Target | None = None
    loss: Loss = "mse"
    transform: TransformName | None = None
    delay: Count = 1
    # Whether the target parameters wait for the policy, too.
    delays_target: bool = True
    # Reduces the target critics to the bootstrap value.
    target_reduction: CriticReduction = Particles.min_over_critics
    # Number of randomly chosen critics in a target; None: all.
    subset: int | None = None
    # Reduces the critics to the action value that the policy maximizes.
    actor_reduction: CriticReduction = Particles.min_over_critics
    # Whether bootstrap targets use target parameters of the policy. Otherwise the
    # current policy selects the next actions, and its entropy is the bonus: only the
    # critics use target parameters.
    has_target_policy: bool = False
    regularizers: Sequence[Mapping[str, Any]] = ()  # with defaults filled in
    # (parts, params, rows, key) -> a term of the critics' loss, `[T, B]`
    critic_penalty: Callable[..., PerRow] | None = None
    # (parts, parameters before the update, target parameters, rows, target key, critic
    # key) -> a function of the parameters, whose results are q(s, a), the target, and
    # the updated statistics of networks. None: `predict_separately`.
    predict: Callable[..., PredictionFunction] | None = None
    # Whether the loss of a critic is the mean over its quantiles, not their sum.
    averages_quantiles: bool = False
    # Whether `predict` updates the statistics of networks, see `Network.learn`.
    learns_statistics: bool = False
    # (parts, params, policy loss, choice, rows) -> the policy loss to use instead
    change_policy_loss: Callable[..., PerRow] = lambda parts, params, loss, *_: loss


class OffPolicyParts(NamedTuple):
    """The parts of losses and bootstrap targets."""

    actor: Actor
    critic: Critic
    temperature: Temperature
    transform: Transform
    options: OffPolicyOptions

    def sample_critics(self, target_params: Params, key: Key) -> Params:
        """The parameters with the critics of a target: a random subset, or all."""
        critics, subset = self.options.critics, self.options.subset
        if subset is None or subset == critics:
            return target_params
        index = jax.random.choice(key, critics, (subset,), replace=False)
        sampled = jax.tree.map(lambda leaf: leaf[index], target_params["critic"])
        return {**target_params, "critic": sampled}

    def soft(
        self, params: Params, choice: ActionChoices, q: Float[Array, "T B M"]
    ) -> PerRow:
        """Σ π(a|s) (q(s, a) − τ log π(a|s))."""
        soft_q = q - self.temperature.value(params) * choice.log_prob
        return jnp.sum(choice.probability * soft_q, axis=-1)


def off_policy_actor_critic(
    name: str,
    parts: Parts,
    actor: Actor,
    temperature: Temperature,
    options: OffPolicyOptions,
) -> Updater:
    """The updater of an actor, its critics and its temperature."""
    spaces, networks, policies, optimizer = parts
    refuse_recurrence(name, is_recurrent(actor.network))
    if isinstance(spaces.action, gymnasium.spaces.Discrete):
        critic = all_actions_critic(networks, "critic", spaces.action, options.critics)
    else:
        critic = one_action_critic(networks, "critic", spaces.action, options.critics)
    refuse_recurrence(name, is_recurrent(critic))
    transform = value_transform(options.transform)
    _check_regularizers(name, actor, options.regularizers)
    policy = policies(**actor.offers, space=spaces.action)
    own = OffPolicyParts(actor, critic, temperature, transform, options)

    def init_params(key: Key) -> Params:
        return {**actor.network.init(key), **critic.init(key), **temperature.params}

    # Only the critics' loss trains a shared torso; the policy uses it unchanged.
    target_policy = ("policy",) if options.has_target_policy else ()
    init, step = learner(
        init_params,
        optimizer,
        options.target,
        initial_groups(options.regularizers),
        turns=[("critic", SHARED), ("policy", *temperature.params)],
        target_groups=("critic", SHARED, *target_policy),
        delay=options.delay,
        delays_target=options.delays_target,
    )

    def target_params(state: Learner) -> Params:
        """All parameters: target parameters for the groups that have them."""
        return {**state.params, **(state.target or {})}

    def update(state, batch, weight, clock, key):
        target_key, critic_key, policy_key, penalty_key = jax.random.split(key, 4)
        predict = (options.predict or predict_separately)(
            own, state.params, target_params(state), batch, target_key, critic_key
        )

        def critic_losses(params: Params) -> Losses:
            prediction, critic_target, statistics = predict(params)
            if options.averages_quantiles:
                prediction = average_quantiles(prediction)
            losses = regression_losses(
                prediction, critic_target, LOSSES[options.loss], transform
            )._replace(statistics=statistics)
            if options.critic_penalty is None:
                return losses
            penalty = options.critic_penalty(own, params, batch, penalty_key)
            return add_penalty(losses, penalty)

        def actor_losses(params: Params) -> Losses:
            return _actor_losses(own, params, batch, policy_key, state.initial)

        losses = [critic_losses, actor_losses]
        state, priority, metrics = step(state, losses, weight, clock)
        return state, Report(priority, metrics)

    def estimate(state, steps, key):
        """With the parameters of targets, and without the noise of networks.

        `key` samples the actions, and the critics if a target has a random subset.
        """
        first, critic_params = steps.first, target_params(state)
        policy_params = critic_params if options.has_target_policy else state.params
        choice_key, subset_key = jax.random.split(key)
        critic_params = own.sample_critics(critic_params, subset_key)

        def reduced_mean(prediction: Prediction) -> Array:
            return options.target_reduction(prediction.particles(transform)).mean()

        def soft_value(obs: ArrayTree) -> PerRow:
            choice = actor.choose_target(policy_params, obs, first, choice_key)
            prediction = evaluate_choices(
                critic, "act", critic_params, None, obs, choice, first
            )
            return own.soft(state.params, choice, reduced_mean(prediction))

        prediction = critic.predict_action(
            "act", critic_params, None, steps.obs, steps.action, first
        )
        # The learned distribution; for a deterministic actor, the exploring policy.
        log_prob = policy.log_prob if actor.family is None else actor.family.log_prob
        outputs, _ = actor.network.apply(policy_params, None, steps.obs, (), first)
        return Estimates(
            v_tm1=soft_value(steps.obs),
            v_t=soft_value(steps.next_obs),
            log_prob=log_prob(outputs, steps.action),
            q_tm1=reduced_mean(prediction),
        )

    return Updater(
        init=init,
        acting=lambda state: select_groups(state.params, POLICY_GROUPS),
        policy=policy,
        update=update,
        estimate=estimate,
        traits=UpdaterTraits(
            is_data_parallel=True, learns_statistics=options.learns_statistics
        ),
    )


def predict_separately(
    parts: OffPolicyParts,
    online: Params,
    target_params: Params,
    rows: Transition,
    target_key: Key,
    critic_key: Key,
) -> PredictionFunction:
    """Predictions of actions taken, and targets from the target parameters."""
    choice_key, bootstrap_key, subset_key = jax.random.split(target_key, 3)
    policy_params = target_params if parts.options.has_target_policy else online
    choice = parts.actor.choose_target(
        policy_params, rows.next_obs, rows.first, choice_key
    )
    critic_params = parts.sample_critics(target_params, subset_key)
    next_prediction = evaluate_choices(
        parts.critic,
        "bootstrap",
        critic_params,
        bootstrap_key,
        rows.next_obs,
        choice,
        rows.first,
    )
    target = soft_target(parts, online, rows, choice, next_prediction)

    def predict(params: Params) -> tuple[Prediction, Particles, Params]:
        batch = (critic_key, rows.obs, rows.action, rows.first)
        return parts.critic.predict_action("learn", params, *batch), target, {}

    return predict


def soft_target(
    parts: OffPolicyParts,
    online: Params,
    rows: Transition,
    choice: ActionChoices,
    prediction: Prediction,
) -> Particles:
    """The target from a prediction `[C, T, B, M, K]` of M choices at `next_obs`."""
    bonus = -parts.temperature.value(online) * choice.log_prob
    bootstrap_value = parts.options.target_reduction(
        prediction.particles(parts.transform)
    )
    return bootstrap_target(rows, Backup(bootstrap_value, choice.probability, bonus))


def _actor_losses(
    parts: OffPolicyParts,
    params: Params,
    rows: Transition,
    key: Key,
    initial: ArrayTree,
) -> Losses:
    """The losses of the policy and of a learned temperature.

    `initial` are groups of parameters at the start of the run, see `Learner.initial`.
    """
    choice_key, critic_key = jax.random.split(key)
    fixed_params = jax.lax.stop_gradient(params)
    choice = parts.actor.choose(params, rows.obs, rows.first, choice_key)
    prediction = evaluate_choices(
        parts.critic, "act", fixed_params, critic_key, rows.obs, choice, rows.first
    )
    q = parts.options.actor_reduction(prediction.particles(parts.transform)).mean()
    policy_loss = parts.options.change_policy_loss(
        parts, fixed_params, -parts.soft(fixed_params, choice, q), choice, rows
    )
    terms = [Term(policy_loss, is_weighted=False, name="policy_loss")]
    row_metrics, metrics = {"policy_loss": policy_loss}, {}
    entropy = -jnp.sum(choice.probability * choice.log_prob, axis=-1)
    if parts.actor.family is not None:
        others = {}
        if initial:
            inputs = rows.obs, (), rows.first
            params_then = {**fixed_params, **initial}
            others["initial"], _ = parts.actor.network.apply(params_then, None, *inputs)
        terms += penalties(
            parts.options.regularizers, parts.actor.family, choice.outputs, others
        )
        row_metrics["entropy"] = entropy
    if parts.temperature.params:
        target_entropy = parts.temperature.target_entropy(choice.outputs)
        excess_entropy = jax.lax.stop_gradient(entropy - target_entropy)
        value = parts.temperature.value(params)
        excess = Term(value * excess_entropy, is_weighted=False, name="temperature")
        terms.append(excess)
        metrics["temperature"] = jnp.asarray(value)
    zeros = jnp.zeros(rows.reward.shape[1:])
    inputs = {"action_value": jnp.sum(choice.probability * q, axis=-1)}
    return Losses(terms, zeros, row_metrics, metrics, choice.statistics, inputs)


def _check_regularizers(
    name: str, actor: Actor, regularizers: Sequence[Mapping[str, Any]]
) -> None:
    """Raises an error on regularizers that this actor does not support."""
    for regularizer in regularizers:
        if regularizer["name"] == "n_step_entropy" or regularizer.get("to") == "old":
            raise RlcliError(
                f"updater `{name}` learns from single steps and does not support the "
                f"regularizer {dict(regularizer)}",
                "use `entropy`, or `kl` to the prior or to the initial policy",
            )
        if actor.family is None:
            raise RlcliError(
                f"the policy of updater `{name}` is deterministic, but `regularizers` "
                "apply to distributions",
                "remove `regularizers`",
            )
