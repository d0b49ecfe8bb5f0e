"""The type of a head."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Bool, Float

from rlcli.networks.torsos import Torso
from rlcli.types import Array, ArrayTree


class Head(NamedTuple):
    """`read` computes outputs from features; `shape` is the shape of one output.

    The keyword-only parameters of a head's factory are the options of `head:`.
    """

    read: Callable[[Torso, Float[Array, "N F"]], ArrayTree]
    shape: tuple[int, ...]
    # Converts an array `[N, *shape]`, from a user-defined forward pass, to the type
    # that `read` returns. None: user-defined forward passes are not supported.
    from_array: Callable[[Array], ArrayTree] | None = lambda array: array
    actions: tuple[int, ...] = ()  # (n,) if there is an output for each action
    # (outputs of `read`, mask of legal actions) -> masked outputs. None: the outputs do
    # not depend on actions.
    mask: Callable[[ArrayTree, Bool[Array, "..."]], ArrayTree] | None = None
    # Where there is a mask, applied before it to the outputs of `read`, with the same
    # arguments: the mean advantage of a dueling head is that of the legal actions.
    centre: Callable[[ArrayTree, Bool[Array, "..."]], ArrayTree] | None = None
    # Whether it predicts returns: such functions get a key where they may use noise.
    predicts_returns: bool = False
