"""Updaters: a loss, and a way to act.

Belongs here: algorithms, one file each, by family, and what families share.
May import: policies, preprocessing, networks, distributions, and the ground.

A factory is given, by position, the parts it builds upon:

- `spaces`: the observations and actions of the environment;
- `networks(name, head, observation=None, action=None, copies=None) -> Network`: the
  recipe's network as function `name`, with parameters of its own (or on the recipe's
  shared torso); `head` is a factory that takes the options of the recipe's `head:`.
  With `observation`, a space, it is a function of that, and not of what the environment
  shows. With `action`, a space, it is a function of (observation, action). With
  `copies` there are so many of it, from different parameters, and an axis for them in
  front of all they say;
- `policies(**offers) -> Policy`: the recipe's policy, acting on what is offered;
- `optimizer`: an optax gradient transformation over all parameters.

The facts it registers are its defaults: `policy`, `tracer`, `replay` if it wants one,
and `unroll`, the steps of each environment between two updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from rlcli import distributions
from rlcli.distributions import Distribution
from rlcli.errors import RlcliError
from rlcli.spaces import describe
from rlcli.types import Environment


class Spaces(NamedTuple):
    """What one environment shows and takes, and what rows are made of its steps."""

    observation: gymnasium.Space
    action: gymnasium.Space
    num_envs: int = 1  # how many of them there are
    owner: str = "the environment"  # whose they are, for messages
    # One environment alone, without batch and time limit, for what plans with it; None
    # where it cannot be asked, or shows something else than what the agent is shown.
    simulator: Callable[[], Environment | None] = lambda: None
    gamma: Any = 1.0  # what the tracer discounts a step with
    span: int | None = 1  # steps that its rows are of; None: whole episodes


def require_discrete(spaces: Spaces, updater: str) -> gymnasium.spaces.Discrete:
    """The space of actions, if it has a finite number of them."""
    if isinstance(spaces.action, gymnasium.spaces.Discrete):
        return spaces.action
    raise RlcliError(
        f"updater `{updater}` needs a Discrete action space, and {spaces.owner} has "
        f"{describe(spaces.action)}",
        "`ppo` acts in a Box; or choose an environment with Discrete actions",
    )


def default_distribution(space: gymnasium.Space, updater: str) -> Distribution:
    """The default family of distributions over the space, if it has one."""
    try:
        return distributions.distribution_for(space)
    except TypeError as error:
        raise RlcliError(
            f"updater `{updater}` needs actions that a distribution is over, and the "
            f"environment's are {space}",
            str(error),
        ) from error
