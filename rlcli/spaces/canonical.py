"""Canonical spaces: the numbers with which agents compute, whatever an environment's.

    Discrete, MultiDiscrete   start at 0
    actions in a Box          of floats: an entry with two bounds is in [−1, 1], its
                              distance from the middle in half-widths; 0 if constant
                              of few integers: the MultiDiscrete of their choices
    dtypes                    have 32 bits

Other entries of a Box keep their units, and so do observations: `preprocess` and
`normalize` scale them. The spaces of the environment itself are *external*. Elements
are converted where an agent meets its environment, and wherever people see them or
provide them.

One pair of functions for each space converts elements, single or in batches, in NumPy
and in JAX. Factories of environments, wrappers and other libraries keep their own
units. The border of the environment converts them, and clips actions to the bounds of a
Box: `environments.canonical_border` around a compiled core, `adapters.host_vector` in a
vector on the host. So policies, updaters, replays and networks know no units, and the
same task in other units is the same run. People see and provide elements of the
environment's own spaces (`Environment.own`): in data sets, trained policies, exports,
films and reports.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcli.errors import RlcliError
from rlcli.spaces import (
    MAX_CHOICES,
    bounds,
    count_integers,
    describe,
    dtype,
    exact_bounds,
    join_members,
    members,
)
from rlcli.types import Array, ArrayTree, External

_NO_BOUND = float(np.finfo(np.float32).max)  # also a common spelling of infinity


class Canonical(NamedTuple):
    """A canonical space, and the functions between its elements and external ones.

    The functions take elements with any leading axes, as NumPy or JAX arrays, and
    return the same kind. External NumPy arrays have the dtypes of the external space,
    all others have 32 bits. `to_canonical` may return the array itself; the others
    copy, because an environment may change its action in place.
    """

    space: gymnasium.Space
    external: gymnasium.Space
    to_canonical: Callable[[ArrayTree], ArrayTree]
    # The element nearest to it: entries of a Box are clipped to the external bounds.
    to_external: Callable[[ArrayTree], ArrayTree]
    scale_to_external: Callable[[ArrayTree], ArrayTree]  # the same without clipping
    # A log-density of external elements is the canonical one minus this.
    log_volume: float


def canonical_observation(
    space: gymnasium.Space, owner: str = "the observation space"
) -> Canonical:
    """The canonical form of an observation space.

    `owner` is the beginning of the error for a space without arrays of a fixed shape.
    """
    return _canonical(space, owner, _same_leaf)


def canonical_action(
    space: gymnasium.Space, owner: str = "the action space"
) -> Canonical:
    """The canonical form of an action space; `owner` as in `canonical_observation`."""
    return _canonical(space, owner, _action_leaf)


def canonical_spaces(
    external: External, owner: str = "the environment"
) -> tuple[Canonical, Canonical]:
    """The canonical forms of the observation and the action space of `owner`."""
    return (
        canonical_observation(external.observation, f"{owner}: its observation space"),
        canonical_action(external.action, f"{owner}: its action space"),
    )


def _canonical(
    space: gymnasium.Space, owner: str, make: Callable[[Any], Canonical]
) -> Canonical:
    """The canonical form of a space, made of its members; `make` is for a Box."""
    match space:
        case spaces.Tuple() | spaces.Dict() if len(space.spaces):
            by_key = {
                key: _canonical(member, owner, make)
                for key, member in members(space).items()
            }
            joined = {key: each.space for key, each in by_key.items()}

            def convert(function: str) -> Callable[[Any], ArrayTree]:
                functions = {
                    key: getattr(each, function) for key, each in by_key.items()
                }

                def apply(element: Any) -> ArrayTree:
                    result = {
                        key: each(element[key]) for key, each in functions.items()
                    }
                    return join_members(space, result)

                return apply

            return Canonical(
                type(space)(join_members(space, joined)),
                space,
                convert("to_canonical"),
                convert("to_external"),
                convert("scale_to_external"),
                sum(each.log_volume for each in by_key.values()),
            )
        case spaces.Discrete() | spaces.MultiDiscrete():
            return _discrete_leaf(space, space.start)
        case spaces.Box() | spaces.MultiBinary():
            return make(space)
    has_none = isinstance(space, spaces.Tuple | spaces.Dict)
    raise RlcliError(
        f"{owner} is {describe(space)}, which has no "
        f"{'members' if has_none else 'fixed shape'}",
        "wrap the environment to convert the space into a Box",
    )


def _external_dtype(space: gymnasium.Space, array: Array) -> Any:
    """The dtype of external elements, which in JAX has 32 bits."""
    return space.dtype if _is_numpy(array) else dtype(space)


def _is_numpy(array: Array) -> bool:
    return isinstance(array, np.ndarray | np.generic)


def _discrete_leaf(space: Any, start: Any) -> Canonical:
    """Subtracts the start, before 64 bits become 32."""
    # 64 bits: the choices may need more than the numbers of the space have.
    start, has_start = np.asarray(start, np.int64), bool(np.any(start))
    match space:
        case spaces.Discrete():
            canonical = spaces.Discrete(space.n, dtype=space.dtype.type)
        case spaces.MultiDiscrete():
            canonical = spaces.MultiDiscrete(space.nvec, dtype=space.dtype.type)
        case _:
            canonical = spaces.MultiDiscrete(count_integers(space).astype(np.int64))
    to = dtype(canonical)

    def to_canonical(batch: Array) -> Array:
        choices = batch - start if has_start else batch
        return choices.astype(to, copy=False)

    is_narrow = np.array_equal(bounds(space), exact_bounds(space))

    def to_external(batch: Array) -> Array:
        if not is_narrow and not _is_numpy(batch):
            raise _beyond_32_bits(space)
        numbers = batch.astype(to) + start if has_start else batch
        return numbers.astype(_external_dtype(space, batch))

    return Canonical(canonical, space, to_canonical, to_external, to_external, 0.0)


def _beyond_32_bits(space: gymnasium.Space) -> RlcliError:
    return RlcliError(
        f"JAX computes with 32 bits, but numbers of {describe(space)} need more",
        "wrap the environment to convert them into smaller numbers or floats",
    )


def _same_leaf(space: Any) -> Canonical:
    """Only converts the dtype; floats beyond 32 bits become infinite.

    Integers of NumPy arrays beyond 32 bits raise an `RlcliError`.
    """
    to = dtype(space)
    narrows = to.kind in "iu" and to != space.dtype

    def to_canonical(batch: Array) -> Array:
        with np.errstate(over="ignore"):
            result = batch.astype(to, copy=False)
        is_converted = narrows and _is_numpy(batch) and result is not batch
        if is_converted and not np.array_equal(result, batch):
            raise _beyond_32_bits(space)
        return result

    def to_external(batch: Array) -> Array:
        return batch.astype(_external_dtype(space, batch))

    is_wide = space.dtype == np.float64
    canonical = _narrow(space, *exact_bounds(space)) if is_wide else space
    return Canonical(canonical, space, to_canonical, to_external, to_external, 0.0)


def _narrow(space: Any, low: np.ndarray, high: np.ndarray) -> gymnasium.Space:
    """A Box of these bounds; floats of 64 bits become 32."""
    kind = np.float32 if space.dtype == np.float64 else space.dtype.type
    with np.errstate(over="ignore"):  # bounds beyond float32 become infinite
        low, high = low.astype(kind), high.astype(kind)
    return spaces.Box(low, high, space.shape, kind)


def _action_leaf(space: Any) -> Canonical:
    """Measures bounded entries of a Box of floats from their middle, in half-widths."""
    same = _same_leaf(space)
    if not isinstance(space, spaces.Box):
        return same
    same = same._replace(to_external=_clip_to(space, same.to_external))
    if space.dtype.kind != "f":
        is_few = 1 <= np.max(count_integers(space), initial=0) <= MAX_CHOICES
        return _discrete_leaf(space, space.low) if is_few else same
    # In float64: the difference of two bounds of float32 may overflow.
    low, high = (bound.astype(np.float64) for bound in exact_bounds(space))
    low = np.where(low <= -_NO_BOUND, -np.inf, low)
    high = np.where(high >= _NO_BOUND, np.inf, high)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    has_width = is_bounded & (low != high)
    finite_low, finite_high = (np.where(is_bounded, x, 0) for x in (low, high))
    half = np.where(has_width, (finite_high - finite_low) / 2, 1)
    # Added before the multiplication, not after: a compiler cannot fuse the two into
    # one operation with another rounding.
    shift = (finite_low + finite_high) / 2 / half
    canonical = _narrow(
        space,
        np.where(has_width, -1, np.where(is_bounded, 0, low)),
        np.where(has_width, 1, np.where(is_bounded, 0, high)),
    )
    if np.all((half == 1) & (shift == 0)):
        return same._replace(space=canonical)
    log_volume = float(np.sum(np.log(half)))
    compute: Any = np.promote_types(space.dtype, np.float32)
    half, shift, to = half.astype(compute), shift.astype(compute), dtype(space)

    def to_canonical(batch: Array) -> Array:
        return (batch / half - shift).astype(to, copy=False)

    def scale_to_external(batch: Array) -> Array:
        return (half * (batch + shift)).astype(
            _external_dtype(space, batch), copy=False
        )

    return Canonical(
        canonical,
        space,
        to_canonical,
        _clip_to(space, scale_to_external),
        scale_to_external,
        log_volume,
    )


def _clip_to(space: spaces.Box, function: Callable[[Array], Array]) -> Any:
    """The function, with its results clipped to the bounds of a Box."""
    exact, narrow = exact_bounds(space), bounds(space)

    def clip(batch: Array) -> Array:
        with np.errstate(over="ignore"):  # infinity is clipped, too
            result = function(batch)
        return result.clip(*(exact if _is_numpy(result) else narrow))

    return clip
