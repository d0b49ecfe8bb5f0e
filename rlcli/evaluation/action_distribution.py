"""Action distribution: the distribution from which a policy samples its actions."""

from __future__ import annotations

import dataclasses

import jax

from rlcli.distributions import Distribution
from rlcli.errors import RlcliError
from rlcli.evaluation.policy_spaces import read_elements
from rlcli.spaces.canonical import Canonical
from rlcli.types import Array, ArrayTree, Key


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ActionDistribution:
    """A batch of distributions over actions; a pytree, as `jit` and `vmap` require."""

    parameters: Array  # `[*batch, size]`
    family: Distribution = dataclasses.field(metadata={"static": True})

    def sample(self, key: Key) -> ArrayTree:
        """Samples one action from each distribution, `[*batch, ...]`."""
        batch = self.parameters.shape[:-1]
        flat = self.parameters.reshape((-1, self.parameters.shape[-1]))
        sample = self.family.sample(flat, self.family.draw(key, flat.shape[0]))
        return jax.tree.map(lambda leaf: leaf.reshape(batch + leaf.shape[1:]), sample)

    def mode(self) -> ArrayTree:
        """The most likely action, `[*batch, ...]`."""
        return self.family.mode(self.parameters)

    def log_prob(self, action: ArrayTree) -> Array:
        """The log-probability or log-density of actions, `[*batch]`."""
        return self.family.log_prob(self.parameters, action)

    def entropy(self) -> Array:
        """The entropy in nats, `[*batch]`."""
        return self.family.entropy(self.parameters)

    @property
    def probabilities(self) -> Array:
        """The probability of each action, `[*batch, actions]`, if they are Discrete."""
        if self.family.name != "categorical":
            raise RlcliError(
                f"a `{self.family.name}` distribution has no table of probabilities",
                "use `log_prob`, `sample`, `mode` or `entropy`",
            )
        return jax.nn.softmax(self.parameters)


def environment_family(family: Distribution, canonical: Canonical) -> Distribution:
    """The family over the actions of the environment, without clipping."""

    def log_prob(parameters: Array, action: ArrayTree) -> Array:
        density = family.log_prob(parameters, read_elements(canonical, action)[0])
        return density - canonical.log_volume

    return family._replace(
        sample=lambda *inputs: canonical.scale_to_external(family.sample(*inputs)),
        mode=lambda parameters: canonical.scale_to_external(family.mode(parameters)),
        log_prob=log_prob,
        entropy=lambda parameters: family.entropy(parameters) + canonical.log_volume,
    )
