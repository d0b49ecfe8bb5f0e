"""Warm-up: another policy acts during the first steps of a run."""

import jax
import jax.numpy as jnp
from jaxtyping import Bool

from rlcli.types import Array, Decision, Key, Policy
from rlcli.xla.control_flow import tree_select


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
