"""Random network distillation (RND)."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from rlcli.errors import RlcliError
from rlcli.networks.heads import feature_head
from rlcli.networks.memory import is_recurrent
from rlcli.preprocessing.moments import Moments, ObservationMoments, discounted_sums
from rlcli.registry import register
from rlcli.types import (
    Array,
    Count,
    Key,
    NonNegative,
    Params,
    PerRow,
    Positive,
    Probability,
    Transition,
)
from rlcli.updaters import Parts
from rlcli.updaters.intrinsic_rewards import IntrinsicReward
from rlcli.updaters.learner import Learner, Losses, Term, learner
from rlcli.updaters.minibatch_epochs import minibatch_epochs


class RNDState(NamedTuple):
    """The state of random network distillation."""

    predictor: Learner
    target: Params  # of the random network; never change
    observation: Moments  # of the floats in observations
    returns: Moments  # of the running discounted errors
    running: Float[Array, "B"]  # the running discounted error of each environment


@register("intrinsic_reward")
def rnd(
    parts: Parts,
    *,
    coefficient: NonNegative = 1.0,
    gamma: Probability = 0.99,
    features: Count = 64,
    observation_clip: Positive | None = 5.0,
    reward_clip: Positive | None = 10.0,
    epochs: Count = 1,
    minibatches: Count = 1,
) -> IntrinsicReward:
    """Random network distillation (RND): the error of predicting a random network.

        β min(e(s′) / √var(E), c′)        e(s) = mean (f(ŝ) − g(ŝ))²
        ŝ = clip((s − mean) / √var(s), −c, c)        Eₜ = e(sₜ₊₁) + γ Eₜ₋₁

    (Burda et al., 2018, https://arxiv.org/abs/1810.12894). g is a network with random
    parameters that never change; f learns to predict its `features` on the rows of each
    update, so e is small for observations like those of earlier updates and large for
    new ones. β is `coefficient`, γ `gamma`, c `observation_clip` and c′ `reward_clip`,
    which the paper lacks: where f has long predicted g, var(E) is almost 0, and the
    next new observation would be worth thousands. The statistics are those of all
    unrolls so far, with the errors before f learns from an unroll; E does not restart
    with an episode. Only floats and images are normalized. Unlike in the paper, the sum
    of both rewards has one value function and one discount, and ends with the episode.

    In `network:` and `optimizer:`, f is `predictor` and g `random_target`. In each
    update f takes `epochs` · `minibatches` gradient steps.
    """
    head = functools.partial(feature_head, features)
    predictor = parts.networks("predictor", head)
    target = parts.networks("random_target", head)
    if is_recurrent(predictor) or is_recurrent(target):
        raise RlcliError(
            "intrinsic reward `rnd` does not support recurrent networks",
            "give `predictor` and `random_target` a network without `memory`",
        )
    if predictor.learn is not None or target.learn is not None:
        raise RlcliError(
            "intrinsic reward `rnd` does not support `batch_norm`",
            "give `predictor` and `random_target` a network without `batch_norm`",
        )
    moments = ObservationMoments(parts.spaces.observation, observation_clip)
    init_predictor, step = learner(predictor.init, parts.optimizer)

    def init(key: Key) -> RNDState:
        predictor_key, target_key = jax.random.split(key)
        return RNDState(
            init_predictor(predictor_key),
            target.init(target_key),
            moments.initial(),
            Moments.initial(jnp.float32(0)),
            jnp.zeros(parts.spaces.num_envs),
        )

    def errors_of(params: Params, state: RNDState, steps: Transition) -> PerRow:
        """The mean squared error of the predictor at the next observations."""
        obs = moments.normalize(state.observation, steps.next_obs)
        first = jnp.zeros_like(steps.first)
        prediction, _ = predictor.apply(params, None, obs, (), first)
        truth, _ = target.apply(state.target, None, obs, (), first)
        return jnp.mean((prediction - truth) ** 2, axis=-1)

    def reward_of(errors: PerRow, state: RNDState) -> PerRow:
        """The reward of steps with these errors."""
        bounded = state.returns.clip(errors, reward_clip)
        return coefficient * bounded / state.returns.deviation

    def update(state, rows, weight, clock, key):
        if weight.size % minibatches:
            raise RlcliError(
                f"intrinsic reward `rnd` cannot split {weight.size} rows into "
                f"{minibatches} equal minibatches",
                "make `intrinsic_reward.minibatches` a divisor of the rows",
            )

        def losses(params: Params, rows: Transition) -> Losses:
            errors = errors_of(params, state, rows)
            metrics = {"intrinsic_reward": reward_of(errors, state)}
            zeros = jnp.zeros(errors.shape[1:])
            term = Term(errors, is_weighted=False, name="predictor_loss")
            return Losses([term], zeros, metrics)

        def learn(before: Learner, minibatch: tuple) -> tuple[Learner, dict]:
            rows, weight = minibatch
            loss = functools.partial(losses, rows=rows)
            after, _, metrics = step(before, loss, weight, clock)
            return after, {
                "intrinsic_reward": metrics["intrinsic_reward"],
                "predictor_loss": metrics["loss"],
            }

        inputs = rows._replace(obs=(), action=(), extras={})  # of `errors_of`
        after, metrics = minibatch_epochs(
            learn,
            state.predictor,
            (inputs, weight),
            key,
            length=1,
            epochs=epochs,
            minibatches=minibatches,
            updater="rnd",
        )
        return state._replace(predictor=after), metrics

    def observe(state, unroll, before):
        # The errors for which the steps were rewarded, before f has learned from them:
        # afterwards they are smaller.
        errors = errors_of(before.predictor.params, before, unroll)
        no_restart = jnp.zeros_like(unroll.first)
        running, sums = discounted_sums(state.running, errors, no_restart, gamma)
        return state._replace(
            observation=moments.update(state.observation, unroll),
            returns=state.returns.update(sums.reshape(-1)),
            running=running,
        )

    return IntrinsicReward(
        init=init,
        reward=lambda state, steps: reward_of(
            errors_of(state.predictor.params, state, steps), state
        ),
        update=update,
        failed_at=lambda state: state.predictor.failed,
        observe=observe,
        environment_axes=RNDState._make([None, None, None, None, 0]),
        is_data_parallel=True,
    )
