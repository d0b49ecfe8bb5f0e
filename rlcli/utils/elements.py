"""Elements of Gymnasium spaces: sampling, and preprocessing for networks."""

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.spaces import bounds, dtype
from rlcli.types import Array, ArrayTree, Key

Preprocessor = Callable[[Key, Any], ArrayTree]


def default_preprocessor(space: gymnasium.Space) -> Preprocessor:
    """Returns a function from an element, or a batch, of a space to network inputs.

    `preprocessor(rng, x)` returns a batch, with a first axis of 1 for a single element:

    - Box: clipped to its bounds, in the JAX dtype, `[N, *shape]`;
    - Discrete: one-hot, float32 `[N, n]`;
    - MultiDiscrete: a list with a one-hot array per entry;
    - MultiBinary: float32 `[N, *shape]`;
    - Tuple and Dict: a tuple, a dict of these.

    The result is deterministic; `rng` is for random preprocessors.
    """
    match space:
        case spaces.Discrete():
            n, start = int(space.n), int(space.start)
            return lambda rng, x: jax.nn.one_hot(_integers(x, start), n).reshape(-1, n)
        case spaces.Box():
            low, high = bounds(space)
            shape, box_dtype = (-1, *space.shape), dtype(space)
            return lambda rng, x: jnp.clip(
                jnp.asarray(x, box_dtype).reshape(shape), low, high
            )
        case spaces.MultiDiscrete():
            sizes = [int(n) for n in space.nvec.ravel()]
            start = np.asarray(space.start).ravel()

            def to_columns(rng: Key, x: Any) -> list[Array]:
                rows = _integers(jnp.reshape(x, (-1, len(sizes))), start)
                return [*map(jax.nn.one_hot, rows.T, sizes)]

            return to_columns
        case spaces.MultiBinary():
            shape = (-1, *space.shape)
            return lambda rng, x: jnp.asarray(x, jnp.float32).reshape(shape)
        case spaces.Tuple():
            members = [default_preprocessor(member) for member in space.spaces]
            return lambda rng, x: tuple(
                preprocess(rng, part)
                for preprocess, part in zip(members, x, strict=True)
            )
        case spaces.Dict():
            named_members = {
                key: default_preprocessor(member) for key, member in space.items()
            }
            return lambda rng, x: {
                key: preprocess(rng, x[key])
                for key, preprocess in named_members.items()
            }
    raise TypeError(
        "expected Box, Discrete, MultiDiscrete, MultiBinary, Tuple or Dict, "
        f"got {space}"
    )


def _integers(x: Any, start: Any) -> Array:
    return jnp.asarray(x, jnp.int32) - jnp.asarray(start, jnp.int32)


def check_preprocessors(
    space: gymnasium.Space,
    *preprocessors: Preprocessor,
    num_samples: int = 20,
    random_seed: int | None = None,
) -> bool:
    """Whether functions `(rng, x)` agree on random elements of a space.

    Tests `num_samples` elements, each with the same key for all functions. Results
    agree if structures and shapes are equal, and numbers agree to 1e-5. NaN agrees with
    NaN.
    """
    if len(preprocessors) < 2:
        raise ValueError(f"expected two functions or more, got {len(preprocessors)}")
    if num_samples < 1:
        raise ValueError(f"expected at least one sample, got {num_samples}")
    for seed in np.random.SeedSequence(random_seed).generate_state(num_samples):
        element, key = safe_sample(space, int(seed)), jax.random.key(int(seed))
        first, *other_results = (
            preprocessor(key, element) for preprocessor in preprocessors
        )
        if not all(_agree(first, other) for other in other_results):
            return False
    return True


def _agree(first: Any, other: Any) -> bool:
    leaves, structure = jax.tree.flatten(first)
    other_leaves, other_structure = jax.tree.flatten(other)
    if structure != other_structure:
        return False
    pairs = zip(map(np.asarray, leaves), map(np.asarray, other_leaves), strict=True)
    return all(_is_close(a, b) for a, b in pairs)


def _is_close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    numeric = jnp.issubdtype(a.dtype, jnp.inexact) and b.dtype.kind not in "USO"
    return np.allclose(a, b, 1e-5, equal_nan=True) if numeric else np.array_equal(a, b)


def safe_sample(space: gymnasium.Space, seed: int | None = None) -> Any:
    """Samples a random element, which always lies in the space.

    Avoids overflows of `space.sample()`, with the largest floats and 64-bit integers.
    Box: uniform where both bounds are finite; |N(0, 1)| from a single bound; N(0, 1)
    without bounds. Uses the generator of the space only if `seed` is None.
    """
    if not isinstance(space, gymnasium.Space):
        raise TypeError(f"expected a space of Gymnasium, got {type(space)}")
    return _sample_element(space, None if seed is None else np.random.default_rng(seed))


def _sample_element(space: gymnasium.Space, random: np.random.Generator | None) -> Any:
    match space:
        case spaces.Tuple():
            return tuple(_sample_element(member, random) for member in space.spaces)
        case spaces.Dict():
            return {
                name: _sample_element(member, random)
                for name, member in space.spaces.items()
            }
        case spaces.Box():
            return _sample_box(space, space.np_random if random is None else random)
    if random is not None:
        space = copy.deepcopy(space)
        space.seed(int(random.integers(2**31)))
    return space.sample()


def _sample_box(space: spaces.Box, random: np.random.Generator) -> np.ndarray:
    box_dtype, shape = space.dtype, space.shape
    if box_dtype.kind != "f":
        integers: Any = random.integers  # its stubs do not accept a variable dtype
        return np.asarray(
            integers(space.low, space.high, shape, box_dtype, endpoint=True)
        )
    low, high = (bound.astype(np.float64) for bound in (space.low, space.high))
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    # Zero replaces infinity, so that branches that are not selected compute no NaN.
    low_or_zero = np.where(has_low, low, 0.0)
    high_or_zero = np.where(has_high, high, 0.0)
    uniform, normal = random.random(shape), random.standard_normal(shape)
    # Not low + uniform (high − low): the difference may overflow.
    bounded = low_or_zero * (1 - uniform) + high_or_zero * uniform
    one_sided = np.where(
        has_low, low_or_zero + np.abs(normal), high_or_zero - np.abs(normal)
    )
    samples = np.where(
        has_low & has_high, bounded, np.where(has_low | has_high, one_sided, normal)
    )
    return np.asarray(np.clip(np.asarray(samples, box_dtype), space.low, space.high))
