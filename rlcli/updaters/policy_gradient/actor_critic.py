"""Actor-critic: the shared core of policy-gradient updaters."""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from rlcli.distributions import Distribution
from rlcli.errors import RlcliError
from rlcli.networks.functions import apply_jointly
from rlcli.networks.heads import distribution_head, state_value_head
from rlcli.networks.memory import apply_to_next, is_recurrent
from rlcli.policies import DistributionOffer, predict
from rlcli.types import (
    Array,
    ArrayTree,
    Count,
    Estimates,
    Key,
    Network,
    NonNegative,
    PerRow,
    Positive,
    Report,
    Transition,
    Updater,
    UpdaterTraits,
)
from rlcli.updaters import Networks, Parts, Spaces, default_distribution
from rlcli.updaters.burn_in import first_carry, refresh_carry
from rlcli.updaters.learner import Learner, Losses, Term, learner, masked_mean
from rlcli.updaters.minibatch_epochs import (
    is_constant,
    masked_variance,
    minibatch_epochs,
)
from rlcli.updaters.regularizers import (
    Regularizer,
    entropy_bonus,
    fill_defaults,
    initial_groups,
    penalties,
    refers_to,
    requires_entropy_bonus,
)
from rlcli.xla.control_flow import tree_select

# The metrics of the updater itself, which an objective may not return. Some are logged
# only with certain options.
UPDATER_METRICS = frozenset(
    {"loss", "gradient_norm", "entropy", "value_loss", "stopped", "explained_variance"}
)


class ObjectiveContext(NamedTuple):
    """A batch of rows of an unroll, or of one minibatch of it. Arrays are `[T, B]`.

    Only `log_prob` depends on the parameters that are learned. All other fields are
    computed before the update.
    """

    log_prob: Array  # log π(a|s)
    advantage: Array  # Â = G − v(s), or the tracer's; optionally normalized
    target: Array  # G, the value target of the tracer
    value: Array  # v(s); 0 without a baseline
    weight: Array  # 0 for rows that are ignored
    steps: Transition  # the tracer's rows, with the extras that the updater requires

    @property
    def log_ratio(self) -> Array:
        """The log of the ratio π(a|s)/μ(a|s) to the policy μ that acted, `[T, B]`.

        The objective must require the extra `log_prob`.
        """
        if "log_prob" not in self.steps.extras:
            raise RlcliError(
                "an objective uses `log_ratio`, but does not require the extra "
                "`log_prob`",
                'declare it: `@objective(requires=("log_prob",))`',
            )
        return self.log_prob - self.steps.extras["log_prob"]


class PolicyLoss(NamedTuple):
    """The result of an objective."""

    loss: Array  # `[T, B]`: the policy loss of each row
    # `[T, B]` each, logged as the mean over rows of weight > 0
    metrics: Mapping[str, Array] = MappingProxyType({})


Objective = Callable[..., PolicyLoss]


class ActorCriticNetworks(NamedTuple):
    """The networks of policy and state value; without a critic all values are 0."""

    family: Distribution
    actor: Network
    critic: Network | None
    joint_actor: Network  # the acting network, which also updates the critic's carry
    is_recurrent: bool

    def value_carry(self, carry: ArrayTree) -> ArrayTree:
        """The critic's part of the carry of `joint_actor`."""
        return carry["value"] if self.is_recurrent else ()

    def apply(
        self, params: ArrayTree, steps: Transition
    ) -> tuple[Mapping[str, ArrayTree], Mapping[str, ArrayTree]]:
        """Outputs `[T, B, ...]` of `policy` and `value`, and the carries of each step.

        Outputs of the policy are distribution parameters. Without a critic, values are
        0, and their carry is ().
        """
        nothing = {"policy": (), "value": ()}
        carries = first_carry(steps) if self.is_recurrent else nothing
        networks = {"policy": self.actor}
        if self.critic is not None:
            networks["value"] = self.critic
        inputs = steps.obs, carries, steps.first
        outputs, new_carries = apply_jointly(networks, params, None, *inputs)
        zeros = {"value": jnp.zeros(steps.reward.shape)}
        return {**zeros, **outputs}, {"value": (), **carries, **new_carries}

    def next_values(
        self, params: ArrayTree, steps: Transition, carries: ArrayTree
    ) -> PerRow:
        """Values of the next observations, from the critic's carries before them."""
        if self.critic is None:
            return jnp.zeros(steps.reward.shape)
        return apply_to_next(self.critic, params, steps.next_obs, carries)


class Batch(NamedTuple):
    """Rows `[T, B]`, or sequences `[L, N]`, with arrays held fixed during an update."""

    steps: Transition
    weight: PerRow
    target: PerRow  # the value target
    value: PerRow  # the value before this update
    # The tracer's, else target − value; optionally normalized.
    advantage: PerRow
    # Policy parameters before this update, `old`, and of the policy at the start of the
    # run, `initial`, if a regularizer needs them.
    others: Mapping[str, Float[Array, "T B size"]]


class ActorCriticOptions(NamedTuple):
    """The options of actor-critic updaters, in the order of `rlcli show`."""

    baseline: bool = True  # whether there is a state value v(s); else v(s) = 0
    value_weight: NonNegative = 0.5  # of the value loss ½ (v(s) − G)²
    # ε_v: clips the value loss, to the larger of the losses of v and of
    # v_old + clip(v − v_old, −ε_v, ε_v)
    value_clip_ratio: Positive | None = None
    normalize_advantage: bool = False  # to mean 0 and deviation 1, in each minibatch
    regularizers: list[Regularizer] = [{"name": "entropy", "weight": 0.01}]  # noqa: RUF012 - never mutated
    # The update stops once `approximate_kl` exceeds it.
    kl_limit: Positive | None = None
    epochs: Count = 1
    minibatches: Count = 1
    # Consecutive steps that stay together in a minibatch. None: 1, or the whole unroll
    # if the network is recurrent.
    sequence: Count | None = None


def actor_critic(
    name: str,
    parts: Parts,
    objective_function: Objective,
    options: ActorCriticOptions,
    requires: tuple[str, ...] = (),
) -> Updater:
    """The updater of an objective with its options bound.

    The tracer computes the value target. Â is the target minus the value before the
    update, unless the tracer sets the extra `advantage`. `requires` lists the extras
    that the objective reads.
    """
    spaces, networks, policies, optimizer = parts
    functions = build_actor_critic(name, spaces, networks, options.baseline)
    regularizers = fill_defaults(options.regularizers)
    if functions.is_recurrent and refers_to(regularizers, "initial"):
        raise RlcliError(
            f"updater `{name}`: the regularizer `kl` to the initial policy does not "
            "support memory: the steps have the state of the present policy alone",
            "remove `memory` from the network, or use `to: old`",
        )
    offer = DistributionOffer(functions.joint_actor, functions.family)
    policy = policies(distribution=offer, space=spaces.action)
    if functions.critic:
        value = predict(functions.critic, functions.value_carry)
        policy = policy._replace(inspection=policy.inspection._replace(value=value))

    def init_params(key: Key) -> ArrayTree:
        critic = functions.critic.init(key) if functions.critic else {}
        return {**functions.actor.init(key), **critic}

    init, step = learner(init_params, optimizer, initial=initial_groups(regularizers))

    def make_batch(state: Learner, steps: Transition, weight: PerRow) -> Batch:
        """The tracer's rows with value targets and advantages."""
        params = state.params
        next_carries = steps.extras.get("next_carry", ())
        carries = functions.value_carry(next_carries)
        outputs, _ = functions.apply(params, steps)
        value = outputs["value"]
        next_value = functions.next_values(params, steps, carries)
        target = steps.reward + steps.discount * next_value
        advantage = steps.extras.get("advantage", target - value)
        if requires_entropy_bonus(regularizers):
            bonus = entropy_bonus(regularizers, next_carries["entropy"], steps.last)
            target, advantage = target + bonus, advantage + bonus
        others = {"old": outputs["policy"]} if refers_to(regularizers, "old") else {}
        if refers_to(regularizers, "initial"):
            initial, _ = functions.apply({**params, **state.initial}, steps)
            others["initial"] = initial["policy"]
        return Batch(steps, weight, target, value, advantage, others)

    def burn_in(params: ArrayTree, rows: Batch) -> Batch:
        """The rows after the burn-in of a replay, with refreshed carries."""

        def unroll_carries(carry: ArrayTree) -> ArrayTree:
            carry_row = jax.tree.map(lambda leaf: leaf[None], carry)
            extras = {**rows.steps.extras, "carry": carry_row}
            _, carries = functions.apply(params, rows.steps._replace(extras=extras))
            return {name: carries[name] for name in carry}

        steps, order = refresh_carry(rows.steps, rows.weight, unroll_carries)
        return order.forward(rows._replace(steps=()))._replace(steps=steps)

    def update(state, batch, weight, clock, key):
        rows = burn_in(state.params, make_batch(state, batch, weight))
        is_whole_unroll = (
            functions.is_recurrent or options.epochs == options.minibatches == 1
        )

        def learn(carry: tuple, minibatch: Batch) -> tuple[tuple, dict[str, Array]]:
            state_before, is_learning = carry
            losses = functools.partial(
                actor_critic_losses,
                functions,
                objective_function,
                options,
                regularizers,
                minibatch,
            )
            after, _, metrics = step(state_before, losses, minibatch.weight, clock)
            if options.kl_limit is None:
                return (after, is_learning), metrics
            # `>`, not `~(<=)`: a NaN divergence must reach the loss, which reports it.
            kl = approximate_kl(functions, state_before.params, minibatch)
            is_learning = is_learning & ~(kl > options.kl_limit)
            metrics = {**metrics, "stopped": 1.0 - is_learning}
            return (tree_select(is_learning, after, state_before), is_learning), metrics

        (state, _), metrics = minibatch_epochs(
            learn,
            (state, jnp.bool_(True)),
            rows,
            key,
            length=options.sequence or (weight.shape[0] if is_whole_unroll else 1),
            epochs=options.epochs,
            minibatches=options.minibatches,
            updater=name,
        )
        error = jnp.abs(rows.target - rows.value)
        if functions.critic:
            metrics["explained_variance"] = explained_variance(rows)
        return state, Report(masked_mean(error, rows.weight, axis=0), metrics)

    def estimate(state, steps, key):
        del key  # nothing is sampled
        params, family = state.params, functions.family
        outputs, carries = functions.apply(params, steps)
        carry = {**carries} if functions.is_recurrent else {}
        if requires_entropy_bonus(regularizers):
            next_outputs = apply_to_next(
                functions.actor, params, steps.next_obs, carries["policy"]
            )
            # Computed here: after the tracer, termination can no longer be recovered.
            carry["entropy"] = steps.discount * family.entropy(next_outputs)
        return Estimates(
            v_tm1=outputs["value"],
            v_t=functions.next_values(params, steps, carries["value"]),
            log_prob=family.log_prob(outputs["policy"], steps.action),
            q_tm1=outputs["value"],  # state values do not depend on actions
            carry=carry or (),  # at `next_obs`
        )

    return Updater(
        init=init,
        policy=policy,
        update=update,
        estimate=estimate,
        traits=UpdaterTraits(
            is_data_parallel=True,
            requires=(*requires, "carry") if functions.is_recurrent else requires,
            gradient_steps=options.epochs * options.minibatches,
            # The entropies are summed from row to row. Rows of several steps would
            # count them twice.
            requires_single_steps="regularizer `n_step_entropy`"
            if requires_entropy_bonus(regularizers)
            else "",
            # Off-policy tracers give some actions an advantage of 0. Subtracting the
            # mean would change it, and so reinforce or suppress these actions.
            requires_on_policy="`normalize_advantage`"
            if options.normalize_advantage
            else "",
        ),
    )


def build_actor_critic(
    name: str, spaces: Spaces, networks: Networks, baseline: bool
) -> ActorCriticNetworks:
    """Builds policy and value from the recipe's networks."""
    family = default_distribution(spaces.action, name)
    actor = networks("policy", functools.partial(distribution_head, family))
    critic = networks("value", state_value_head) if baseline else None
    functions = {"policy": actor} | ({"value": critic} if critic else {})
    recurrent = {name for name, function in functions.items() if is_recurrent(function)}
    if not recurrent:
        return ActorCriticNetworks(family, actor, critic, actor, False)

    acting = {name: functions[name] for name in functions if name in recurrent}
    acting = {"policy": actor, **acting}

    def apply(params, key, obs, carry, first):
        outputs, carries = apply_jointly(acting, params, key, obs, carry, first)
        return outputs["policy"], {**carry, **carries}

    def initial(batch: int) -> ArrayTree:
        return {name: function.initial(batch) for name, function in functions.items()}

    return ActorCriticNetworks(
        family, actor, critic, Network(actor.init, apply, initial), True
    )


def actor_critic_losses(
    functions: ActorCriticNetworks,
    objective_function: Objective,
    options: ActorCriticOptions,
    regularizers: Sequence[Mapping],
    batch: Batch,
    params: ArrayTree,
) -> Losses:
    """The policy objective, the value loss and the regularizers."""
    weight = batch.weight
    if options.normalize_advantage:
        advantage = standardize(batch.advantage, weight)
        batch = batch._replace(advantage=advantage)
    joint, _ = functions.apply(params, batch.steps)
    outputs, value = joint["policy"], joint["value"]
    log_prob = functions.family.log_prob(outputs, batch.steps.action)
    policy, objective_metrics = objective_function(
        ObjectiveContext(
            log_prob, batch.advantage, batch.target, batch.value, weight, batch.steps
        )
    )
    terms = [Term(policy, is_weighted=False, name="policy_loss")]
    terms += penalties(regularizers, functions.family, outputs, batch.others)
    row_metrics = {"entropy": functions.family.entropy(outputs), **objective_metrics}
    priority = jnp.zeros(weight.shape[1:])  # not used: `update` computes the priority
    if functions.critic:
        error = 0.5 * (value - batch.target) ** 2
        row_metrics["value_loss"] = error
        if options.value_clip_ratio is not None:
            limit = options.value_clip_ratio
            clipped_value = batch.value + jnp.clip(value - batch.value, -limit, limit)
            error = jnp.maximum(error, 0.5 * (clipped_value - batch.target) ** 2)
        error = options.value_weight * error
        terms.append(Term(error, is_weighted=True, name="value_loss"))
    inputs = {"target": batch.target, "value": batch.value}
    inputs |= {"advantage": batch.advantage, "log_prob": log_prob}
    return Losses(terms, priority, row_metrics, inputs=inputs)


def approximate_kl(
    functions: ActorCriticNetworks, params: ArrayTree, batch: Batch
) -> Float[Array, ""]:
    """An estimate of the KL divergence from the policy that acted: a scalar.

    E[ρ − 1 − log ρ] with ρ = π(a|s) / π_old(a|s), which estimates KL(π_old ‖ π) without
    bias and is never negative (Schulman, 2020, http://joschu.net/blog/kl-approx.html).
    """
    outputs = functions.apply(params, batch.steps)[0]["policy"]
    log_prob = functions.family.log_prob(outputs, batch.steps.action)
    log_ratio = log_prob - batch.steps.extras["log_prob"]
    return masked_mean(jnp.exp(log_ratio) - 1 - log_ratio, batch.weight)


def standardize(advantage: PerRow, weight: PerRow) -> PerRow:
    """Shifts and scales to mean 0 and standard deviation 1 over rows of weight > 0.

    0 where all are equal. The largest of N rows is at most √(N − 1).
    """
    deviation = advantage - masked_mean(advantage, weight)
    scaled = deviation / (jnp.sqrt(masked_variance(advantage, weight)) + 1e-8)
    return jnp.where(is_constant(advantage, weight), 0.0, scaled)


def explained_variance(batch: Batch) -> Float[Array, ""]:
    """The fraction of the targets' variance that the values explain: at most 1.

    0 if there is no variance to explain, and values vary.
    """
    residual = masked_variance(batch.target - batch.value, batch.weight)
    unexplained = residual / (masked_variance(batch.target, batch.weight) + 1e-8)
    most = jnp.where(is_constant(batch.target, batch.weight), 1.0, jnp.inf)
    return 1 - jnp.minimum(unexplained, most)
