"""CrossQ: soft actor-critic with batch normalization and without target parameters."""

import jax
import jax.numpy as jnp

from rlcli.networks.predictions import Particles, Prediction
from rlcli.registry import register
from rlcli.types import ArrayTree, Key, Params, Transition, Updater
from rlcli.updaters import Parts
from rlcli.updaters.off_policy.off_policy_actor_critic import (
    OffPolicyOptions,
    OffPolicyParts,
    PredictionFunction,
    soft_target,
)
from rlcli.updaters.off_policy.soft_pg import SECTIONS, SoftOptions, soft_actor_critic


@register("updater", **SECTIONS, network={"name": "mlp", "batch_norm": True})
def crossq(
    parts: Parts, *, options: SoftOptions = SoftOptions("learned", critics=2, delay=3)
) -> Updater:
    """CrossQ: SAC with batch normalization and without target parameters.

        E[τ log π(a|s) − min q(s, a)],  a ~ π(·|s)
        y = R + I (min q(s′, a′) − τ log π(a′|s′)),  a′ ~ π(·|s′)

    (Bhatt et al., 2024, https://arxiv.org/abs/1902.05605). The critics predict q(s, a)
    and q(s′, a′) in one forward pass, so that batch normalization sees both; the
    gradient does not pass through y. The policy maximizes critics with running
    statistics, and running statistics select actions. The networks have `batch_norm`
    by default. The policy is updated once in `delay` updates.
    """
    algorithm = OffPolicyOptions(predict=predict_jointly, learns_statistics=True)
    return soft_actor_critic("crossq", parts, options, algorithm)


def predict_jointly(
    parts: OffPolicyParts,
    online: Params,
    target_params: Params,
    rows: Transition,
    target_key: Key,
    critic_key: Key,
) -> PredictionFunction:
    """Predictions and targets from one forward pass of the critics."""
    del target_params  # there are none
    choice = parts.actor.choose_target(online, rows.next_obs, rows.first, target_key)
    batch = _join(rows.obs, rows.next_obs)
    if choice.action is not None:
        batch = (batch, _join(rows.action, choice.action))
    first = _join(rows.first, rows.first)

    def predict(params: Params) -> tuple[Prediction, Particles, Params]:
        both, statistics = parts.critic.learn(params, critic_key, batch, first)
        prediction, next_prediction = _split(both)
        prediction = parts.critic.select(prediction, rows.action)
        if choice.action is not None:
            next_prediction = jax.tree.map(
                lambda leaf: leaf[..., None, :], next_prediction
            )
        target = soft_target(parts, online, rows, choice, next_prediction)
        return prediction, jax.lax.stop_gradient(target), statistics

    return predict


def _join(first: ArrayTree, second: ArrayTree) -> ArrayTree:
    """Two batches `[T, B, ...]` as one, `[T, 2 B, ...]`."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), first, second)


def _split(prediction: Prediction) -> tuple[Prediction, Prediction]:
    """The predictions `[C, T, B, ...]` of the two batches in `[C, T, 2 B, ...]`."""
    size = jax.tree.leaves(prediction)[0].shape[2] // 2
    first = jax.tree.map(lambda leaf: leaf[:, :, :size], prediction)
    return first, jax.tree.map(lambda leaf: leaf[:, :, size:], prediction)
