"""Policy gradients: on-policy actor-critic algorithms, and V-trace.

Belongs here: objectives, such as PPO's and V-trace's, and their shared core.
May import: the shared modules of updaters, and what updaters may import.

An on-policy algorithm is an objective: a function of a context
(`updaters/policy_gradient/actor_critic.py`) that returns the policy loss of each
row. `objective` (`updaters/policy_gradient/objective_updater.py`) turns it into the
updater of its name: `actor_critic` adds networks, value loss, regularizers, minibatch
epochs and recurrence. The options of these are declared once, in `ActorCriticOptions`;
an updater has those that its decorator names. These decorators share their mechanism,
`updaters/decorator.py`: the signature of the updater, which is its schema, joins the
function's own options and the shared ones.
"""

from rlcli.updaters.policy_gradient.actor_critic import (
    ObjectiveContext as ObjectiveContext,
)
from rlcli.updaters.policy_gradient.actor_critic import PolicyLoss as PolicyLoss
from rlcli.updaters.policy_gradient.objective_updater import objective as objective
