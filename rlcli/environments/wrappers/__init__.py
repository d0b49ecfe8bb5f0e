"""Wrappers: environments made of environments, by name in a recipe's `wrappers:` list.

Belongs here: factories that take an environment and return one; the part `wrapper`.
May import: preprocessing, and the ground.

A factory takes the core and gives a core. What it adds to the state stands beside the
core's own, and what it draws beside the core's noise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcli import action_masks
from rlcli.errors import RlcliError
from rlcli.types import ArrayTree, Environment


class WrapperState(NamedTuple):
    """The state of a core, and what a wrapper remembers beside it."""

    core: ArrayTree
    memory: Any


def refuse_mask(core: Environment, name: str) -> None:
    """Refuses a core with an action mask, for what plays actions nobody chose just now.

    Such an action may be forbidden, and who obeys the mask would be punished for it.
    """
    if action_masks.split_mask(core.observation)[1] is not None:
        raise RlcliError(
            f"wrapper `{name}` would play actions that the `{action_masks.MASK}` "
            f"forbids",
            "leave it out of `wrappers`",
        )
