"""What a head is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rlcli.networks.torsos import Torso
from rlcli.types import Array, ArrayTree


class Head(NamedTuple):
    """`read` makes outputs of features; `shape` is that of one output.

    The keyword-only parameters of a head's factory are what a recipe's `head:` may set.
    """

    read: Callable[[Torso, Array], ArrayTree]
    shape: tuple[int, ...]
    # From an array `[N, *shape]` of one's own to what `read` gives; None: there is no
    # such array.
    from_array: Callable[[Array], ArrayTree] | None = lambda array: array
    actions: tuple[int, ...] = ()  # how many it tells apart, if any
    # (what `read` gives, which actions are allowed) -> the same without the others;
    # None: it says nothing of actions.
    mask: Callable[[ArrayTree, Array], ArrayTree] | None = None
