"""Heads: from features to the outputs that an updater uses.

Belongs here: Haiku functions of a torso and its features, `[N, features] -> [N, ...]`.
May import: other modules of networks, distributions, and the ground.
"""

from rlcli.networks.heads.layers import Head
from rlcli.networks.heads.plain import (
    DynamicsOutput,
    PredictionOutput,
    action_head,
    action_values_head,
    distribution_head,
    dynamics_head,
    feature_head,
    hidden_state_head,
    prediction_head,
    state_value_head,
)
from rlcli.networks.heads.returns import Actions, Role, return_head

__all__ = [
    "Actions",
    "DynamicsOutput",
    "Head",
    "PredictionOutput",
    "Role",
    "action_head",
    "action_values_head",
    "distribution_head",
    "dynamics_head",
    "feature_head",
    "hidden_state_head",
    "prediction_head",
    "return_head",
    "state_value_head",
]
