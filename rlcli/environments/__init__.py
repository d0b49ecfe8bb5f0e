"""Environments: native JAX environments, adapters to other libraries, and wrappers.

Belongs here: factories of an `Environment`, the vector, and `to_gymnasium`.
May import: preprocessing (wrappers only), `distributions.action_masks`, and the ground.

`Environment.step(…, cut)` truncates the episodes where `cut`, a bool that is broadcast
to `[B]`, on the host to `[S, B]`: a new episode begins there. `last` stays what the
environment itself ends, and the caller adds `cut`, so it can tell which episodes would
have continued. Evaluation truncates an episode after 10,000 steps of its own, and
counts those that would have continued. `train.reset` (evolution) cuts all episodes at
the end of each unroll. A vector of Gymnasium that resets its environments itself
(`vectorization: own`) starts new episodes only in all of them together. If some are
cut, they continue their episode as the next one.
"""

from rlcli.environments.to_gymnasium import to_gymnasium as to_gymnasium
from rlcli.environments.to_gymnasium import to_gymnasium_vector as to_gymnasium_vector
