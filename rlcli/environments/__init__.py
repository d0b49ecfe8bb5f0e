"""Environments: pure JAX cores, the vector made of them, and adapters to others."""

from rlcli.environments.exported import to_gymnasium, to_gymnasium_vector

__all__ = ["to_gymnasium", "to_gymnasium_vector"]
