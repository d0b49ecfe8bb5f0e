"""Distributions over actions and values: pure functions of their parameters.

Belongs here: families with sampling, log-probability, entropy and divergence; action
masks.
May import: the ground.

Sampling has two steps, as in the whole package: `draw(key, batch)` returns noise that
does not depend on parameters, and `sample(parameters, noise)` maps it to an element of
the space. `size` is the number of parameters, the size of the network output.
"""

from typing import Literal, get_args

import gymnasium
import numpy as np
from gymnasium import spaces as kinds

from rlcli import spaces
from rlcli.distributions.choices import categorical as categorical
from rlcli.distributions.choices import multi_binary as multi_binary
from rlcli.distributions.choices import multi_discrete as multi_discrete
from rlcli.distributions.composites import composite as composite
from rlcli.distributions.composites import with_constant_entries
from rlcli.distributions.family import Distribution as Distribution
from rlcli.distributions.normals import normal as normal
from rlcli.distributions.squashed import squashed_normal as squashed_normal
from rlcli.spaces import MAX_CHOICES, count_integers

BoxFamily = Literal["normal", "squashed_normal"]


def distribution_for(
    space: gymnasium.Space, *, box: BoxFamily = "normal"
) -> Distribution:
    """Returns the default family of distributions over a space.

    Categorical for Discrete; independent categoricals for MultiDiscrete, MultiBinary
    and a small Box of integers; `box` for a Box of floats; the product of independent
    members for a Tuple or a Dict. Raises a TypeError for any other space.
    """
    match space:
        case kinds.Discrete():
            return categorical(int(space.n), int(space.start), spaces.dtype(space))
        case kinds.MultiDiscrete():
            return multi_discrete(space.nvec, space.start, spaces.dtype(space))
        case kinds.MultiBinary():
            return multi_binary(space.shape, spaces.dtype(space))
        case kinds.Box() if np.issubdtype(space.dtype, np.floating):
            if box not in get_args(BoxFamily):
                raise ValueError(
                    f"expected `box` in {get_args(BoxFamily)}, got {box!r}"
                )
            if box == "squashed_normal":
                return with_constant_entries(space, squashed_normal)
            return with_constant_entries(
                space, lambda rest: normal(rest.shape, spaces.dtype(rest))
            )
        case kinds.Box() if np.max(count_integers(space), initial=0) <= MAX_CHOICES:
            return multi_discrete(count_integers(space), space.low, spaces.dtype(space))
        case kinds.Tuple() | kinds.Dict() if len(space.spaces):
            by_member = {
                name: distribution_for(member, box=box)
                for name, member in spaces.members(space).items()
            }
            return composite(spaces.join_members(space, by_member))
    raise TypeError(
        "expected Discrete, MultiDiscrete, MultiBinary, a Box of floats or of at most "
        f"{MAX_CHOICES} integers, or a Tuple or Dict of these, got {space}"
    )
