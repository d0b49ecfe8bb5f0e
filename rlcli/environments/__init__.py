"""Environments: native JAX environments, adapters to other libraries, and wrappers.

Belongs here: factories of an `Environment`, the vector, and `to_gymnasium`.
May import: preprocessing (wrappers only), `distributions.action_masks`, and the ground.
"""

from rlcli.environments.to_gymnasium import to_gymnasium, to_gymnasium_vector

__all__ = ["to_gymnasium", "to_gymnasium_vector"]
