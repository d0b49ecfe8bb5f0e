"""Policy gradients: on-policy actor-critic algorithms, and V-trace.

Belongs here: objectives, such as PPO's and V-trace's, and their shared core.
May import: the shared modules of updaters, and what updaters may import.
"""

from rlcli.updaters.policy_gradient.objective_context import (
    ObjectiveContext as ObjectiveContext,
)
from rlcli.updaters.policy_gradient.objective_context import PolicyLoss as PolicyLoss
from rlcli.updaters.policy_gradient.objectives import objective as objective
