"""Random network distillation (RND)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float

from rlcli.errors import RlcliError
from rlcli.networks.heads import feature_head
from rlcli.networks.memory import is_recurrent
from rlcli.preprocessing.moments import (
    EPSILON,
    Moments,
    initial_moments,
    observation_moments,
    update_moments,
)
from rlcli.registry import register
from rlcli.types import (
    Array,
    ArrayTree,
    Clock,
    Count,
    Key,
    Network,
    NonNegative,
    Params,
    Positive,
    Probability,
    Transition,
)
from rlcli.updaters import Spaces
from rlcli.updaters.intrinsic_rewards.contract import IntrinsicReward
from rlcli.updaters.learner import Learner, Losses, Term, learner
from rlcli.updaters.minibatch_epochs import minibatch_epochs, split_sequences


class RNDState(NamedTuple):
    """The state of random network distillation."""

    predictor: Learner
    target: Params  # of the random network; never change
    observation: Moments  # of the floats in observations
    returns: Moments  # of the running discounted errors
    running: Float[Array, "B"]  # the running discounted error of each environment


@register("intrinsic_reward")
def rnd(
    spaces: Spaces,
    networks: Callable[..., Network],
    optimizer: optax.GradientTransformation,
    *,
    coefficient: NonNegative = 1.0,
    gamma: Probability = 0.99,
    features: Count = 64,
    clip: Positive = 5.0,
    epochs: Count = 1,
    minibatches: Count = 1,
) -> IntrinsicReward:
    """Random network distillation (RND): the error of predicting a random network.

        β e(s′) / √var(E)        e(s) = mean (f(ŝ) − g(ŝ))²
        ŝ = clip((s − mean) / √var(s), −c, c)        Eₜ = e(sₜ₊₁) + γ Eₜ₋₁

    (Burda et al., 2018, https://arxiv.org/abs/1810.12894). g is a network with random
    parameters that never change; f learns to predict its `features` on the rows of each
    update, so e is small for observations like those of earlier updates and large for
    new ones. β is `coefficient`, γ `gamma`, c `clip`. The statistics are running ones
    of all unrolls, and E does not restart with an episode. Only floats of observations
    are normalized.

    In `network:` and `optimizer:`, f is `predictor` and g `random_target`. In each
    update f takes `epochs` · `minibatches` gradient steps.
    """
    head = functools.partial(feature_head, features)
    predictor, target = networks("predictor", head), networks("random_target", head)
    if is_recurrent(predictor) or is_recurrent(target):
        raise RlcliError(
            "intrinsic reward `rnd` does not support recurrent networks",
            "give `predictor` and `random_target` a network without `memory`",
        )
    moments = observation_moments(spaces.observation, clip)
    begin, step = learner(predictor.init, optimizer)

    def error(
        params: Params, state: RNDState, steps: Transition
    ) -> Float[Array, "T B"]:
        obs = moments.normalize(state.observation, steps.next_obs)
        first = jnp.zeros_like(steps.first)
        prediction, _ = predictor.apply(params, None, obs, (), first)
        truth, _ = target.apply(state.target, None, obs, (), first)
        return jnp.mean((prediction - truth) ** 2, axis=-1)

    def scale(state: RNDState) -> Array:
        return coefficient / jnp.sqrt(state.returns.variance + EPSILON)

    def init(key: Key) -> RNDState:
        predictor_key, target_key = jax.random.split(key)
        return RNDState(
            begin(predictor_key),
            target.init(target_key),
            moments.initial(),
            initial_moments(jnp.float32(0)),
            jnp.zeros(spaces.num_envs),
        )

    def reward(state: RNDState, steps: Transition) -> Float[Array, "T B"]:
        return scale(state) * error(state.predictor.params, state, steps)

    def update(
        state: RNDState,
        rows: Transition,
        weight: Float[Array, "T B"],
        clock: Clock,
        key: Key,
    ) -> tuple[RNDState, dict[str, Array]]:
        if weight.size % minibatches:
            raise RlcliError(
                f"intrinsic reward `rnd` cannot split {weight.size} rows into "
                f"{minibatches} equal minibatches",
                "make `intrinsic_reward.minibatches` a divisor of the rows",
            )

        def losses(params: Params, rows: Transition) -> Losses:
            errors = error(params, state, rows)
            rewards = {"intrinsic_reward": scale(state) * errors}
            zeros = jnp.zeros(errors.shape[1:])
            return Losses([Term(errors, is_weighted=False)], zeros, rewards)

        def learn(before: Learner, part: tuple) -> tuple[Learner, dict[str, Array]]:
            rows, weight = part
            loss = functools.partial(losses, rows=rows)
            after, _, metrics = step(before, loss, weight, clock)
            return after, {
                "intrinsic_reward": metrics["intrinsic_reward"],
                "predictor_loss": metrics["loss"],
            }

        seen = rows._replace(obs=(), action=(), extras={})  # all that `error` needs
        after, metrics = minibatch_epochs(
            learn,
            state.predictor,
            split_sequences((seen, weight), 1, "rnd"),
            key,
            epochs=epochs,
            minibatches=minibatches,
            updater="rnd",
        )
        return state._replace(predictor=after), metrics

    def observe(state: RNDState, unroll: Transition) -> RNDState:
        errors = error(state.predictor.params, state, unroll)
        running, returns = _running_returns(state.running, errors, gamma)
        return state._replace(
            observation=moments.update(state.observation, unroll),
            returns=update_moments(state.returns, returns.reshape(-1)),
            running=running,
        )

    return IntrinsicReward(
        init=init,
        reward=reward,
        update=update,
        failed_at=lambda state: state.predictor.failed,
        observe=observe,
        environment_axes=RNDState(None, None, None, None, 0),  # type: ignore[arg-type] # axes
        is_data_parallel=True,
    )


def _running_returns(
    running: Float[Array, "B"], rewards: Float[Array, "T B"], gamma: Array | float
) -> tuple[Float[Array, "B"], Float[Array, "T B"]]:
    """Discounted sums of earlier rewards: after the last step, and at each."""

    def add(before: ArrayTree, reward: Array) -> tuple[Array, Array]:
        after = reward + gamma * before
        return after, after

    return jax.lax.scan(add, running, rewards)
