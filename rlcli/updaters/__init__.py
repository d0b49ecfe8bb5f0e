"""Updaters: learning algorithms, each with a loss and a policy.

Belongs here: algorithms, one file each, by family, and the modules that families share.
May import: policies, preprocessing, networks, distributions, and the ground.

The positional argument `parts` of an updater factory is a record, `Parts`:

- `spaces`: the observation and action spaces of the environment;
- `networks(name, head, observation=None, action=None, copies=None) -> Network`: the
  recipe's network for the function `name`, with its own parameters (or on the recipe's
  shared torso). `head` is a factory that takes the options of the recipe's `head:`.
  `observation`: a space that replaces the environment's observation space as input.
  `action`: a space; the network is then a function of (observation, action). `copies`:
  the number of copies with different parameters, stacked on a leading output axis;
- `policies(**offers) -> Policy`: the recipe's policy, which acts on one of the offers;
- `optimizer`: an optax gradient transformation over all parameters.

A factory that names them also gets `tracer`, the recipe's, and `simulator`: a single
environment without batch and time limit, for planning. It is None if the environment
does not run in the compiled program, or if the agent sees other observations.

The registered facts are the recipe's defaults: `policy`, `tracer`, `network` and its
`head`, or `heads` by function, `replay` if the updater needs one, and `unroll`, the
steps of each environment between two updates.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import gymnasium
import jax.numpy as jnp
import optax

from rlcli import distributions
from rlcli.distributions import BoxFamily, Distribution
from rlcli.errors import RlcliError
from rlcli.spaces import describe
from rlcli.types import ArrayTree, Estimates, External, Key, Network, Policy, Transition

# What a factory gets as `networks` and as `policies`.
Networks: TypeAlias = Callable[..., Network]
Policies: TypeAlias = Callable[..., Policy]


class Spaces(NamedTuple):
    """The canonical spaces of one environment."""

    observation: gymnasium.Space
    action: gymnasium.Space
    num_envs: int = 1  # number of parallel environments
    owner: str = "the environment"  # name of the environment, for messages
    external: External | None = None  # the environment's own spaces, for messages

    def describe_action(self) -> str:
        """The action space as the environment defines it, for messages."""
        return describe((self.external or self).action)

    def refuse_action(self, need: str, hint: str) -> RlcliError:
        """The error for an action space that does not meet a need: "`x` needs …"."""
        message = f"{need}, but {self.owner} has {self.describe_action()}"
        return RlcliError(message, hint)


class Parts(NamedTuple):
    """What an updater is built from; the docstring of the package describes it."""

    spaces: Spaces
    networks: Networks
    policies: Policies
    optimizer: optax.GradientTransformation


def require_discrete(spaces: Spaces, updater: str) -> gymnasium.spaces.Discrete:
    """Returns the action space if it is Discrete, else raises an error."""
    if isinstance(spaces.action, gymnasium.spaces.Discrete):
        return spaces.action
    raise spaces.refuse_action(
        f"updater `{updater}` needs a Discrete action space",
        "use `ppo` for a Box, or choose an environment with Discrete actions",
    )


def refuse_recurrence(updater: str, recurrent: bool) -> None:
    """Refuses recurrent networks where an updater learns from single steps."""
    if recurrent:
        raise RlcliError(
            f"updater `{updater}` learns from single steps and does not support "
            "recurrent networks",
            "remove `memory` from the network",
        )


def zero_estimates(state: ArrayTree, steps: Transition, key: Key) -> Estimates:
    """`Updater.estimate` of an updater that learns no values."""
    return Estimates(*[jnp.zeros(steps.reward.shape)] * 4)


def default_distribution(
    space: gymnasium.Space, updater: str, *, box: BoxFamily = "normal"
) -> Distribution:
    """Returns the default distribution family over the space, or raises an error."""
    try:
        return distributions.distribution_for(space, box=box)
    except TypeError as error:
        raise RlcliError(
            f"updater `{updater}` needs a distribution over actions, but there is none "
            f"for the action space {space}",
            str(error),
        ) from error
