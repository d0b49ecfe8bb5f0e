"""Heads: from features to what an updater needs.

Belongs here: Haiku functions of features, `[N, features] -> [N, ...]`.
May import: other modules of networks, distributions, and the ground.

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
from rlcli.networks.heads.planning import Following, Outlook, following, hidden, outlook
from rlcli.networks.heads.returns import NAMED, Actions, Role, prediction

__all__ = [
    "NAMED",
    "Actions",
    "Following",
    "Head",
    "Outlook",
    "Role",
    "action",
    "action_values",
    "following",
    "hidden",
    "outlook",
    "parameters",
    "prediction",
    "state_value",
]
