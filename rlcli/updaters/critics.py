"""Critics: functions that predict returns, for TD rules and losses.

A critic is an ensemble of C functions that learn the same target. Its output is a
`Prediction` of `rlcli.networks.predictions`, with arrays `[C, T, B, …, K]`.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import chex
import gymnasium
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Bool, Float, Int

from rlcli.errors import RlcliError
from rlcli.networks.functions import learn_outputs
from rlcli.networks.heads import Actions, Role, return_head
from rlcli.networks.memory import is_recurrent, merge_time
from rlcli.networks.predictions import (
    Particles,
    Prediction,
    Transform,
    divergence,
    index_actions,
)
from rlcli.types import Array, ArrayTree, Key, Network, Params, PerRow, Transition
from rlcli.updaters import Networks
from rlcli.updaters.burn_in import first_carry
from rlcli.updaters.learner import Losses, Term

ROLES: tuple[Role, ...] = ("learn", "bootstrap", "act")
RowPriority = Literal["td_error", "loss"]  # of a row in a prioritized replay


class Critic(NamedTuple):
    """Predicts the return of one action or of all actions.

    A `Role` states the purpose of the prediction. Without a key the networks use no
    noise. A recurrent critic starts from `carry` `[B, ...]` and resets where `first`.
    """

    init: Callable[[Key], Params]
    # (role, params, key, obs, action, first, carry) -> q(s, a), `[C, T, B, K]`
    predict_action: Callable[..., Prediction]
    # (role, params, key, obs, first, carry) -> q(s, ·), `[C, T, B, A, K]`
    predict_all_actions: Callable[..., Prediction]
    # (params, key, inputs, first) -> prediction, statistics: for losses that update the
    # statistics (`Network.learn`). Inputs are (obs, action), or obs where the
    # prediction is of all actions; then `select(prediction, action)` selects one.
    learn: Callable[..., tuple[Prediction, Params]]
    initial: Callable[[int], ArrayTree] = lambda batch: ()  # batch -> carry
    # (params, obs, first, carry) -> the carry after each step, `[T, B, ...]`
    carries: Callable[..., ArrayTree] = lambda *_: ()
    metric: str = "q"  # the name of its values in metrics: `q`, or `v` of states
    select: Callable[..., Prediction] = lambda prediction, action: prediction


class Backup(NamedTuple):
    """The bootstrap value of a row: a mixture of M distributions of returns."""

    bootstrap_value: Particles  # `[T, B, M, K]`
    # `probability` and `bonus` broadcast to `[T, B, M]`, `reward` to `[T, B]`.
    probability: Float[Array, "..."] | float = 1.0
    bonus: Float[Array, "..."] | float = 0.0  # added to the bootstrap value
    reward: Float[Array, "..."] | float = 0.0  # added to the reward
    # π(·|s′) of the policy that the bootstrap value evaluates, for off-policy tracers.
    # None: the policy that acts.
    target_policy: Float[Array, "T B A"] | None = None


def state_critic(networks: Networks, name: str, critics: int = 1) -> Critic:
    """A critic v(s): independent of the action; A = 1 in `predict_all_actions`."""
    apply, learn, network = _apply_by_role(networks, name, (), critics)
    _refuse_recurrence(network, "the value of states")

    def predict_all_actions(role, params, key, obs, first, carry=()):
        prediction = apply(role, params, key, obs, first, carry)
        return jax.tree.map(lambda leaf: leaf[..., None, :], prediction)

    def predict_action(role, params, key, obs, action, first, carry=()):
        return apply(role, params, key, obs, first, carry)

    return Critic(network.init, predict_action, predict_all_actions, learn, metric="v")


def all_actions_critic(
    networks: Networks, name: str, space: gymnasium.spaces.Discrete, critics: int = 1
) -> Critic:
    """A critic q(s, ·): a function of the observation, with one value per action.

    The only critic that may be recurrent.
    """
    predict_all_actions, learn, network = _apply_by_role(
        networks, name, (int(space.n),), critics
    )

    def select(prediction, action):
        return index_actions(prediction, action - int(space.start))

    def predict_action(role, params, key, obs, action, first, carry=()):
        prediction = predict_all_actions(role, params, key, obs, first, carry)
        return select(prediction, action)

    def carries(params, obs, first, carry):
        return network.apply(params, None, obs, carry, first)[1]

    critic = Critic(
        network.init, predict_action, predict_all_actions, learn, select=select
    )
    if not is_recurrent(network):
        return critic
    return critic._replace(initial=network.initial, carries=carries)


def one_action_critic(
    networks: Networks, name: str, space: gymnasium.Space, critics: int = 1
) -> Critic:
    """A critic q(s, a): a function of observation and action, in any action space.

    Over Discrete actions, `predict_all_actions` evaluates it for every action.
    """
    apply, learn, network = _apply_by_role(networks, name, (), critics, action=space)
    _refuse_recurrence(network, "a function of observation and action")

    def predict_action(role, params, key, obs, action, first, carry=()):
        return apply(role, params, key, (obs, action), first, carry)

    def predict_all_actions(role, params, key, obs, first, carry=()):
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise ValueError(f"expected a Discrete action space, got {space}")
        action, repeated_obs = repeat_for_actions(space, obs, first)
        prediction = apply(role, params, key, (repeated_obs, action), first, carry)
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, -2), prediction)

    return Critic(network.init, predict_action, predict_all_actions, learn)


def repeat_for_actions(
    space: gymnasium.spaces.Discrete, obs: ArrayTree, first: Bool[Array, "*batch"]
) -> tuple[Int[Array, "A *batch"], ArrayTree]:
    """Every action `[A, T, B]`, and the observations `[T, B, …]` repeated for each."""
    count, dtype = int(space.n), jax.dtypes.canonicalize_dtype(space.dtype)
    numbers = int(space.start) + jnp.arange(count, dtype=dtype)
    action = jnp.broadcast_to(
        numbers.reshape((count,) + (1,) * first.ndim), (count, *first.shape)
    )
    return action, jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), obs
    )


def _apply_by_role(
    networks: Networks, name: str, actions: Actions, critics: int, **more: Any
) -> tuple[Callable[..., Prediction], Callable[..., tuple], Network]:
    """Returns a function by role, `Critic.learn`, and the network.

    The function is `(role, params, key, inputs, first, carry) -> [C, …]`.
    """
    if critics > 1:
        more["copies"] = critics
    by_role = {
        role: networks(name, functools.partial(return_head, actions, role), **more)
        for role in ROLES
    }

    def apply(role, params, key, inputs, first, carry=()):
        prediction, _ = by_role[role].apply(params, key, inputs, carry, first)
        return stack(prediction)

    def learn(params, key, inputs, first):
        prediction, statistics = learn_outputs(
            by_role["learn"], params, key, inputs, (), first
        )
        return stack(prediction), statistics

    def stack(prediction):
        if critics > 1:
            return prediction
        return jax.tree.map(lambda leaf: leaf[None], prediction)

    return apply, learn, by_role["learn"]


def _refuse_recurrence(network: Network, function: str) -> None:
    """Refuses recurrent networks in critics whose carry no updater stores."""
    if is_recurrent(network):
        raise RlcliError(
            f"a recurrent network is not supported for {function}",
            "remove `memory`, or choose a rule for action values with `q: all`",
        )


def initial_carry(critic: Critic, steps: Transition) -> ArrayTree:
    """The critic's carry before the first step, `[B, ...]`."""
    return first_carry(steps) if is_recurrent(critic) else ()


def apply_single_steps(
    function: Callable[..., Prediction],
    rows: tuple[ArrayTree, ...],
    shape: tuple[int, ...],
    carries: ArrayTree,
) -> Prediction:
    """Applies a critic to rows that are not consecutive, each with its own carry.

    Calls `function(*rows, first, carry)` on rows and carries `[T, B, ...]`, of `shape`
    (T, B), as one step of T · B environments without resets.
    """
    first = jnp.zeros((1, shape[0] * shape[1]), bool)
    step = jax.tree.map(lambda leaf: merge_time(leaf)[None], rows)
    prediction = function(*step, first, merge_time(carries))
    return jax.tree.map(
        lambda leaf: leaf.reshape((leaf.shape[0], *shape, *leaf.shape[3:])), prediction
    )


def bootstrap_target(rows: Transition, backup: Backup) -> Particles:
    """The bootstrap target of rows `[T, B]`: the distribution of y, `[T, B, M · K]`.

        y = R + r + I (z + b)

    z is the backup's bootstrap value, b its bonus, r its reward.
    """
    bootstrap_value = backup.bootstrap_value
    shape = bootstrap_value.value.shape[:-1]
    bonus, probability = (
        jnp.broadcast_to(value, shape) for value in (backup.bonus, backup.probability)
    )
    reward = (rows.reward + backup.reward)[..., None, None]
    value = reward + rows.discount[..., None, None] * (
        bootstrap_value.value + bonus[..., None]
    )
    return bootstrap_value._replace(value=value).mix(probability)


def regression_losses(
    prediction: Prediction,
    target: Particles,
    loss: Callable[[Array], Array],
    transform: Transform,
    metric: str = "q",
    priority: RowPriority = "td_error",
) -> Losses:
    """The loss of a critic's prediction `[C, T, B, K]` of the target `[T, B, K′]`.

    The losses of the C functions are summed. The priority `[T, B]`, or `[B]` if T = 1,
    is a mean over the C functions: of the error |E[y] − E[z]| of the prediction z from
    the target y, or of their divergence. `metric` is the name of the mean prediction in
    the metrics.
    """
    chex.assert_rank([target.value, target.probability], 3)
    error = jnp.abs(prediction.error(target, transform))
    loss_values = prediction.loss(target, loss, transform)
    chex.assert_shape([error, loss_values], (None, *target.value.shape[:2]))
    term = jnp.sum(loss_values, axis=0)
    row_metrics = {"td_error": error, metric: prediction.particles(transform).mean()}
    if priority == "loss":
        distance = divergence(prediction, target, loss, transform)
    else:
        distance = error
    row_priority = jnp.mean(distance, axis=0)
    has_rows = row_priority.shape[0] > 1
    return Losses(
        [Term(term, is_weighted=True, name=f"{metric}_loss")],
        row_priority if has_rows else row_priority[0],
        row_metrics,
        inputs={"target": target.mean()},
    )


def gradient_norms(
    column_losses: Callable[[Params, ArrayTree], Float[Array, "T 1"]],
    params: Params,
    columns: ArrayTree,
    weight: PerRow,
) -> Float[Array, "B"]:
    """The gradient norm ‖∇ Σ loss‖ of each column, over its rows of weight > 0.

    The priority of Lahire et al. (2022, https://arxiv.org/abs/2110.01528).
    `column_losses(params, column)` are the losses of one column, `[T, 1]`. The leaves
    of `columns` have the columns on axis 1, `[·, B, ...]`.
    """

    def norm(column: ArrayTree, is_learned: Bool[Array, "T"]) -> Float[Array, ""]:
        column = jax.tree.map(lambda leaf: leaf[:, None], column)

        def loss(params: Params) -> Float[Array, ""]:
            return jnp.sum(column_losses(params, column)[:, 0], where=is_learned)

        return optax.tree.norm(jax.grad(loss)(params))

    return jax.vmap(norm, in_axes=1)(columns, weight > 0)


def add_penalty(losses: Losses, penalty: PerRow) -> Losses:
    """The losses of critics with one more term, logged as `penalty`."""
    return losses._replace(
        terms=[*losses.terms, Term(penalty, is_weighted=True, name="penalty")],
        row_metrics={**losses.row_metrics, "penalty": penalty},
    )


def backup_value(backup: Backup) -> PerRow:
    """The expected value of a backup."""
    mean = backup.bootstrap_value.mean() + backup.bonus
    return jnp.sum(mean * backup.probability, axis=-1)
