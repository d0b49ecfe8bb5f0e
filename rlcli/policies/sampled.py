"""Policies that sample their action, or another one during a warm-up."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from rlcli import spaces
from rlcli.distributions import action_masks
from rlcli.policies import DistributionOffer, policy_from_outputs
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Decision, Inspection, Key, Policy
from rlcli.xla.control_flow import tree_select
from rlcli.xla.indexing import select_index


@register("policy")
def sampled(distribution: DistributionOffer) -> Policy:
    """Samples the action from the distribution; its mode for evaluation."""
    family = distribution.distribution

    def decide(parameters: Float[Array, "B size"], action: ArrayTree) -> Decision:
        # Computed from the stored action, not from the noise, so that the importance
        # ratio is exactly 1 until the parameters change.
        return Decision(action, {"log_prob": family.log_prob(parameters, action)})

    def explore(parameters: Float[Array, "B size"], noise: ArrayTree) -> Decision:
        return decide(parameters, family.sample(parameters, noise))

    def exploit(parameters: Float[Array, "B size"], noise: ArrayTree) -> Decision:
        return decide(parameters, family.mode(parameters))

    return policy_from_outputs(
        distribution, family.draw, explore, exploit, family.log_prob, family=family
    )


@register("policy")
def mode(distribution: DistributionOffer) -> Policy:
    """The mode of the distribution, also for training: for noisy parameters."""
    inner = sampled(distribution)
    return inner._replace(explore=inner.exploit, inspection=Inspection())


@register("policy")
def random(
    space: gymnasium.Space, observation: gymnasium.Space | None = None
) -> Policy:
    """Random policy: samples the action space; uniform over the legal actions."""
    if observation is not None and action_masks.split_mask(observation)[1] is not None:
        return _random_allowed_policy(space)

    def draw(key: Key, batch: int) -> ArrayTree:
        sample = jax.vmap(lambda sample_key: spaces.sample(space, sample_key))
        return sample(jax.random.split(key, batch))

    def log_prob(outputs: ArrayTree, action: ArrayTree) -> Float[Array, "..."]:
        return jnp.full(_leading_shape(space, action), density)

    density = uniform_log_density(space)

    def act(acting, obs, state, first, noise):
        return Decision(noise, {"log_prob": log_prob((), noise)}), state

    return Policy(lambda batch: ((), ()), draw, act, act, log_prob)


def _random_allowed_policy(space: gymnasium.Space) -> Policy:
    """Samples uniformly among the actions that the observation's mask allows.

    `log_prob` takes masked outputs of a network, or `action_masks.uniform_logits`.
    """
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise ValueError(f"expected Discrete actions, got {space}")
    actions, start = int(space.n), int(space.start)

    def draw(key: Key, batch: int) -> Float[Array, "B A"]:
        return jax.random.uniform(key, (batch, actions))

    def log_prob(
        outputs: Float[Array, "*batch A"], action: Int[Array, "*batch"]
    ) -> Float[Array, "*batch"]:
        logits = action_masks.uniform_like(outputs)
        return select_index(jax.nn.log_softmax(logits), action - start)

    def act(acting, obs, state, first, noise):
        is_legal = action_masks.allowed_actions(obs)
        action = start + jnp.argmax(jnp.where(is_legal, noise, -1.0), axis=-1)
        logits = action_masks.uniform_logits(obs)
        return Decision(action, {"log_prob": log_prob(logits, action)}), state

    return Policy(lambda batch: ((), ()), draw, act, act, log_prob)


def _leading_shape(space: gymnasium.Space, action: ArrayTree) -> tuple[int, ...]:
    """Returns the leading (batch) axes of an action."""
    members = spaces.members(space)
    if members:
        key = next(iter(members))
        return _leading_shape(members[key], action[key])
    return action.shape[: action.ndim - len(space.shape or ())]


def uniform_log_density(space: gymnasium.Space) -> float:
    """The log-density of `spaces.sample`; 0 for an unbounded Box."""
    if isinstance(space, gymnasium.spaces.Tuple | gymnasium.spaces.Dict):
        return sum(map(uniform_log_density, spaces.members(space).values()))
    is_box = isinstance(space, gymnasium.spaces.Box)
    if is_box and not space.is_bounded():
        return 0.0
    low, high = (bound.astype(np.float64) for bound in spaces.bounds(space))
    is_discrete = not np.issubdtype(spaces.dtype(space), np.floating)
    # The widths of intervals, or the numbers of discrete elements.
    widths = (high - low + is_discrete)[low != high]  # 0 for a constant entry
    return -float(np.sum(np.log(widths)))


def warmup_policy(policy: Policy, warmup: Policy, is_warmup: Bool[Array, ""]) -> Policy:
    """Explores with `warmup` while `is_warmup` is true, then with `policy`."""

    def draw(key: Key, batch: int) -> tuple:
        policy_key, warmup_key = jax.random.split(key)
        return policy.draw(policy_key, batch), warmup.draw(warmup_key, batch)

    def explore(acting, obs, state, first, noise):
        policy_decision, state = policy.explore(acting, obs, state, first, noise[0])
        warmup_decision, _ = warmup.explore(
            acting, obs, warmup.initial(len(first)), first, noise[1]
        )
        action = tree_select(is_warmup, warmup_decision.action, policy_decision.action)
        log_prob = jnp.where(
            is_warmup,
            warmup_decision.extras["log_prob"],
            policy_decision.extras["log_prob"],
        )
        return Decision(action, {**policy_decision.extras, "log_prob": log_prob}), state

    def exploit(acting, obs, state, first, noise):
        return policy.exploit(acting, obs, state, first, noise[0])

    return policy._replace(draw=draw, explore=explore, exploit=exploit)
