"""Elements: observations and actions between an environment and a policy.

A policy computes with canonical spaces (`rlcli.spaces.canonical`), in batches of JAX
arrays. Users have elements of the environment's own spaces, alone or with leading batch
axes, as NumPy or JAX arrays or Python numbers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium import spaces as kinds

from rlcli import spaces
from rlcli.errors import RlcliError
from rlcli.spaces import describe
from rlcli.spaces.canonical import Canonical
from rlcli.types import Array, ArrayTree


class PolicySpaces(NamedTuple):
    """The spaces of one environment, as it defines them."""

    observation: gymnasium.Space
    action: gymnasium.Space


def has_jax_arrays(tree: ArrayTree) -> bool:
    """Whether a leaf is a JAX array, also while JAX traces."""
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree))


def read_elements(
    canonical: Canonical, elements: Any
) -> tuple[ArrayTree, tuple[int, ...]]:
    """Converts elements for a policy; also returns their batch shape."""
    shapes = []

    def to_array(space: gymnasium.Space, leaf: Any) -> Array:
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        shapes.append(_batch_shape(space, array))
        return array

    arrays = _map_elements(to_array, canonical.external, elements)
    if len(set(shapes)) > 1:
        raise RlcliError(
            f"the members of the observation have different batch shapes: {shapes}",
            "give every member the same leading axes",
        )
    return canonical.to_canonical(arrays), shapes[0]


def write_action(canonical: Canonical, action: ArrayTree, as_numpy: bool) -> ArrayTree:
    """Converts the actions of a policy into elements of the environment's space."""
    if not as_numpy:
        return canonical.to_external(action)
    external = canonical.to_external(jax.tree.map(np.asarray, action))

    def to_element(space: gymnasium.Space, leaf: Any) -> Any:
        array = np.asarray(leaf)
        # A scalar is hashable, as an array is not.
        return array[()] if isinstance(space, kinds.Discrete) else array

    return _map_elements(to_element, canonical.external, external)


def _map_elements(
    function: Callable[[gymnasium.Space, Any], Array],
    space: gymnasium.Space,
    element: Any,
) -> ArrayTree:
    """Applies `function(space, leaf)` to each leaf; the result has plain containers."""
    members = spaces.members(space)
    if not members and not isinstance(space, kinds.Tuple | kinds.Dict):
        return function(space, element)
    try:
        mapped = {
            name: _map_elements(function, member, element[name])
            for name, member in members.items()
        }
    except (TypeError, LookupError) as error:
        raise RlcliError(
            f"expected an element of {describe(space)}, got {type(element).__name__}",
            f"its members are {', '.join(f'`{name}`' for name in members)}",
        ) from error
    return spaces.join_members(space, mapped)


def _batch_shape(space: gymnasium.Space, array: Array) -> tuple[int, ...]:
    """The leading axes of a batch of elements; refuses other shapes and dtypes."""
    shape = space.shape or ()
    split = array.ndim - len(shape)
    if split < 0 or array.shape[split:] != shape:
        raise RlcliError(
            f"expected an element of {describe(space)}, alone or with leading batch "
            f"axes, got shape {array.shape}",
            "the policy acts on raw observations of the environment in `policy.spaces`;"
            " its state stacks frames, and its network preprocesses them",
        )
    if array.dtype.kind not in "biuf" or (
        array.dtype.kind == "f" and spaces.dtype(space).kind != "f"
    ):
        raise RlcliError(
            f"expected an element of {describe(space)}, got an array of {array.dtype}",
            f"convert it to {spaces.dtype(space)}",
        )
    return array.shape[:split]
