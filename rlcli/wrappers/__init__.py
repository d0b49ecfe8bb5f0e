"""Wrappers: a core made into another one, by name in a recipe's `wrappers:` list.

A factory takes the core and gives a core. What it adds to the state stands beside the
core's own, and what it draws beside the core's noise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcli.types import ArrayTree


class Wrapped(NamedTuple):
    """The state of a core, and what a wrapper remembers beside it."""

    core: ArrayTree
    memory: Any
