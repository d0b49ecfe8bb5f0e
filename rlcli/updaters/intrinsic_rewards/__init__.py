"""Intrinsic rewards: rewards that agents add to those of their environment.

Belongs here: rewards with a learned state, such as a prediction error, one file each,
and what adds them to an updater.
May import: the shared modules of updaters, and what updaters may import.
"""

from rlcli.updaters.intrinsic_rewards.contract import IntrinsicReward as IntrinsicReward
from rlcli.updaters.intrinsic_rewards.contract import (
    add_intrinsic_reward as add_intrinsic_reward,
)
