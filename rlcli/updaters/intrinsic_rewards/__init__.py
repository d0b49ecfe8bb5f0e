"""Intrinsic rewards: rewards that agents add to those of their environment.

Belongs here: rewards with a learned state, such as a prediction error, one file each,
and what adds them to an updater.
May import: the shared modules of updaters, and what updaters may import.

Intrinsic rewards are parts with a state of their own. `add_intrinsic_reward` wraps an
updater: its estimates contain the reward of each step (`Estimates.intrinsic_reward`),
which the agent adds to the rewards before the tracer, its `update` trains the reward on
the same rows, and its `observe` updates running statistics. So a replay holds the
environment's rewards, and neither loop nor tracers nor updaters know of it.
Normalization wraps the result: an intrinsic reward is in the unit of normalized
rewards.
"""

from rlcli.updaters.intrinsic_rewards.contract import IntrinsicReward as IntrinsicReward
from rlcli.updaters.intrinsic_rewards.contract import (
    add_intrinsic_reward as add_intrinsic_reward,
)
