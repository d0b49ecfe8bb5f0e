"""Heads: from features to what an updater needs.

A head is a Haiku function of the torso and its features, `[N, features] -> [N, ...]`.
"""

from __future__ import annotations

from rlcli.networks.heads.head import Head
from rlcli.networks.heads.plain import (
    action,
    action_values,
    parameters,
    state_value,
)
from rlcli.networks.heads.returns import NAMED, Actions, Role, prediction

__all__ = [
    "NAMED",
    "Actions",
    "Head",
    "Role",
    "action",
    "action_values",
    "parameters",
    "prediction",
    "state_value",
]
