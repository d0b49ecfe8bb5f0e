"""Heads: from features to the outputs that an updater uses.

Belongs here: Haiku functions of a torso and its features, `[N, features] -> [N, ...]`.
May import: other modules of networks, distributions, and the ground.
"""

from rlcli.networks.heads.layers import Head as Head
from rlcli.networks.heads.plain import DynamicsOutput as DynamicsOutput
from rlcli.networks.heads.plain import PredictionOutput as PredictionOutput
from rlcli.networks.heads.plain import action_head as action_head
from rlcli.networks.heads.plain import action_values_head as action_values_head
from rlcli.networks.heads.plain import distribution_head as distribution_head
from rlcli.networks.heads.plain import dynamics_head as dynamics_head
from rlcli.networks.heads.plain import feature_head as feature_head
from rlcli.networks.heads.plain import hidden_state_head as hidden_state_head
from rlcli.networks.heads.plain import prediction_head as prediction_head
from rlcli.networks.heads.plain import state_value_head as state_value_head
from rlcli.networks.heads.returns import Actions as Actions
from rlcli.networks.heads.returns import Role as Role
from rlcli.networks.heads.returns import return_head as return_head
