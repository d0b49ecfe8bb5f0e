"""Adapters: environments of other libraries, compiled or on the host.

Belongs here: one module per library, and the contracts that they share.
May import: `environments.observation_image`, `environments.rgb_image`, and the ground;
libraries lazily.

Libraries that JAX can trace become a core, by `adapters.pure_core`. Every other library
implements `pools.HostVector`: N environments that start an episode only when `begin` is
called, with a seed, and step simultaneously. The implementations are copies in this
process, one process per environment, the environment author's own vector, EnvPool's
threads, and copies of a game whose agents are environments that begin and end together
(`HostVector.group`). `host_vector.HostVectorState` stores the episode and the actions
of each environment, so all of them resume alike: episodes are replayed, each started so
late that all reach the saved step simultaneously, because a vector steps all
environments or none.
"""

from rlcli.environments.adapters.jax_libraries import pure_core as pure_core
