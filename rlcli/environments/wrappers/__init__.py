"""Environment wrappers, listed by name under `wrappers:` in a recipe.

Belongs here: factories that take an environment and return one; the part `wrapper`.
May import: preprocessing, and the ground.

A factory takes and returns a `Core`, by `rlcli.types.wrap`. Its own state and noise are
stored next to those of the core.
"""

from typing import Any, NamedTuple

from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.types import ArrayTree, Core


class WrapperState(NamedTuple):
    """The state of the wrapped environment, and the state of the wrapper."""

    core: ArrayTree
    memory: Any


def refuse_mask(core: Core, name: str) -> None:
    """Raises an error if the core has an action mask, for wrappers that alter actions.

    Such a wrapper may play an action that the mask forbids, and the agent would be
    penalized for it.
    """
    if action_masks.split_mask(core.observation)[1] is not None:
        raise RlcliError(
            f"wrapper `{name}` would take actions that the `{action_masks.MASK}` "
            f"forbids",
            "remove it from `wrappers`",
        )
