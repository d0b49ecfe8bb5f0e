"""Adapters: environments of other libraries, compiled or on the host.

Belongs here: one module per library, and the contracts that they share.
May import: `environments.observation_image`, `environments.rgb_image`, and the ground;
libraries lazily.
"""

from rlcli.environments.adapters.jax_core import pure_core as pure_core
