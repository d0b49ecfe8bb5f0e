"""Behaviour cloning: imitates the actions of a data set, or of a teacher."""

import functools
import math
from typing import Literal

import gymnasium
import jax.numpy as jnp
from jaxtyping import Float

from rlcli.networks.heads import distribution_head
from rlcli.networks.memory import is_recurrent
from rlcli.policies import DistributionOffer
from rlcli.registry import register
from rlcli.types import Array, Params, PerRow, Report, Transition, Updater
from rlcli.updaters import (
    Parts,
    default_distribution,
    refuse_recurrence,
    zero_estimates,
)
from rlcli.updaters.learner import Losses, Term, learner
from rlcli.updaters.regularizers import POLICY_GROUPS


@register(
    "updater", policy="sampled", tracer="n_step", replay={"name": "dataset"}, unroll=1
)
def behaviour_cloning(
    parts: Parts,
    *,
    loss: Literal["log_prob", "mse"] = "log_prob",
    labels: Literal["data", "teacher"] = "data",
) -> Updater:
    """Behaviour cloning (BC): the policy under which the actions are most likely.

        −log π(a|s)        or        mean (E[π(·|s)] − a)²

    (Pomerleau, 1991, https://doi.org/10.1162/neco.1991.3.1.88). For Discrete actions
    the first is the cross-entropy. `loss: mse` needs a Box of floats. Rewards are not
    used.

    With `labels: teacher` the actions are those of the policy π₀ of `init`, in the
    observations of the replay: the first loss is then KL(π₀(·|s) ‖ π(·|s)). A replay
    of the agent's own steps makes it DAgger (Ross et al., 2011,
    https://arxiv.org/abs/1011.0686): the teacher says what to do where the learner
    gets to. `init.teacher: true` lets the learner start with parameters of its own.
    """
    spaces, networks, policies, optimizer = parts
    space = spaces.action
    if loss == "mse" and not (
        isinstance(space, gymnasium.spaces.Box) and space.dtype.kind == "f"
    ):
        need = "`loss: mse` needs actions in a Box of floats"
        raise spaces.refuse_action(need, "use `loss: log_prob`")
    family = default_distribution(space, "behaviour_cloning")
    network = networks("policy", functools.partial(distribution_head, family))
    refuse_recurrence("behaviour_cloning", is_recurrent(network))
    policy = policies(distribution=DistributionOffer(network, family), space=space)
    groups = POLICY_GROUPS if labels == "teacher" else ()
    init, step = learner(network.init, optimizer, initial=groups)

    def losses(params: Params, rows: Transition, teacher: Params) -> Losses:
        outputs, _ = network.apply(params, None, rows.obs, (), rows.first)
        log_prob = family.log_prob(outputs, rows.action)
        imitation, taught = -log_prob, outputs
        if labels == "teacher":
            params = {**params, **teacher}
            taught, _ = network.apply(params, None, rows.obs, (), rows.first)
            imitation = family.kl(taught, outputs)
        if loss == "mse":
            action = family.mean(taught) if labels == "teacher" else rows.action
            imitation = squared_error(family.mean(outputs), action)
        row_metrics = {"log_prob": log_prob, "entropy": family.entropy(outputs)}
        terms = [Term(imitation, is_weighted=False, name="imitation")]
        return Losses(terms, jnp.zeros(rows.reward.shape[1:]), row_metrics)

    def update(state, batch, weight, clock, key):
        del key  # nothing is sampled
        state, priority, metrics = step(
            state,
            functools.partial(losses, rows=batch, teacher=state.initial),
            weight,
            clock,
        )
        return state, Report(priority, metrics)

    return Updater(init=init, policy=policy, update=update, estimate=zero_estimates)


def squared_error(
    action: Float[Array, "T B ..."], target: Float[Array, "T B ..."]
) -> PerRow:
    """The mean squared difference of actions `[T, B, *shape]`, over the entries."""
    error = jnp.square(action - target)
    # Not the mean itself, which is NaN for an action without entries.
    return jnp.sum(error, axis=range(2, error.ndim)) / max(
        1, math.prod(error.shape[2:])
    )
