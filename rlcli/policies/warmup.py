"""The first steps of a run, played by another policy than the one that learns."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlcli.types import Array, Decision, Key, Policy
from rlcli.xla.control_flow import tree_select


def warmup_policy(policy: Policy, first: Policy, warming: Array) -> Policy:
    """Explores as `first` while `warming` holds (a scalar), then as `policy`."""

    def draw(key: Key, batch: int) -> tuple:
        ours, theirs = jax.random.split(key)
        return policy.draw(ours, batch), first.draw(theirs, batch)

    def explore(acting, obs, state, begins, noise):
        policy_decision, state = policy.explore(acting, obs, state, begins, noise[0])
        warmup_decision, _ = first.explore(
            acting, obs, first.initial(len(begins)), begins, noise[1]
        )
        action = tree_select(warming, warmup_decision.action, policy_decision.action)
        log_prob = jnp.where(
            warming,
            warmup_decision.extras["log_prob"],
            policy_decision.extras["log_prob"],
        )
        return Decision(action, {**policy_decision.extras, "log_prob": log_prob}), state

    def exploit(acting, obs, state, begins, noise):
        return policy.exploit(acting, obs, state, begins, noise[0])

    return policy._replace(draw=draw, explore=explore, exploit=exploit)
