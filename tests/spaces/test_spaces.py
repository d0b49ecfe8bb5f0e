"""Spaces in JAX, beside Gymnasium's own `sample` and `contains`."""

from __future__ import annotations

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats
from tiers import quick_first

from rlcli.spaces import (
    boolean_box,
    bounds,
    contains,
    describe,
    dtype,
    flat_size,
    sample,
    zeros,
)

INF = np.inf
MIXED = spaces.Box(
    np.array([-1, -INF, 2, -INF], np.float32), np.array([3, 5, INF, INF], np.float32)
)
SPACES = {
    "discrete": spaces.Discrete(5),
    "discrete from 3": spaces.Discrete(4, start=3),
    "discrete from -2, 8 bits": spaces.Discrete(4, start=-2, dtype=np.int8),
    "box": spaces.Box(-2, 2, (4,)),
    "box of every kind of interval": MIXED,
    "box float64": spaces.Box(-0.1, 0.1, (3,), np.float64),
    "box float16": spaces.Box(-1, 1, (3,), np.float16),
    "box of all float32": spaces.Box(-3.4e38, 3.4e38, (2,)),
    "box without axes": spaces.Box(0, 1, ()),
    "box uint8": spaces.Box(0, 255, (3, 2), np.uint8),
    "box int8": spaces.Box(-3, 3, (5,), np.int8),
    "box bool": spaces.Box(0, 1, (5,), np.bool_),
    "box int64": spaces.Box(-7, 7, (2,), np.int64),
    "box uint32": spaces.Box(0, 2**32 - 1, (2,), np.uint32),
    "box int without bounds": spaces.Box(-INF, INF, (3,), np.int32),
    "box int with one bound": spaces.Box(5, INF, (3,), np.int32),
    "box int with the other bound": spaces.Box(-INF, 5, (3,), np.int32),
    "multi-discrete": spaces.MultiDiscrete([3, 4], start=[0, -1]),
    "multi-discrete of two axes": spaces.MultiDiscrete([[3, 4], [2, 9]]),
    "multi-binary": spaces.MultiBinary([2, 3]),
    "tuple": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))]),
    "dict": spaces.Dict({"b": spaces.MultiBinary(2), "a": spaces.Discrete(3)}),
}
CHOICES = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
NAMES = pytest.mark.parametrize("name", SPACES)
COUNT = 5_000


def draw(space: gymnasium.Space, count: int):
    keys = jax.random.split(jax.random.key(0), count)
    return jax.device_get(jax.jit(jax.vmap(lambda key: sample(space, key)))(keys))


@functools.cache
def compare(name: str):
    """Our samples, whether they are elements, and whether Gymnasium's are."""
    space = SPACES[name]
    space.seed(0)
    samples = [space.sample() for _ in range(20)]
    theirs = jax.tree.map(lambda *each: np.stack(each), *samples)

    @jax.jit
    def compute(keys):
        inside = jax.vmap(lambda x: contains(space, x))
        ours = jax.vmap(lambda key: sample(space, key))(keys)
        return ours, inside(ours), inside(theirs)

    return jax.device_get(compute(jax.random.split(jax.random.key(0), COUNT)))


def native(space: gymnasium.Space, drawn, index: int):
    """One of the elements drawn, as Gymnasium would have it."""
    if isinstance(space, spaces.Tuple):
        return tuple(
            native(each, drawn[i], index) for i, each in enumerate(space.spaces)
        )
    if isinstance(space, spaces.Dict):
        return {name: native(each, drawn[name], index) for name, each in space.items()}
    return np.asarray(drawn[index])


@NAMES
def test_samples_are_elements_to_gymnasium_and_to_us(name: str) -> None:
    space, (drawn, inside, _) = SPACES[name], compare(name)
    assert inside.shape == (COUNT,)
    assert inside.all()
    for index in range(100):
        assert space.contains(native(space, drawn, index))


@NAMES
def test_what_gymnasium_samples_is_an_element(name: str) -> None:
    *_, inside = compare(name)
    assert inside.shape == (20,)
    assert inside.all()


@CHOICES
def test_zeros_have_the_shape_and_dtype_of_samples(space) -> None:
    drawn = jax.eval_shape(lambda: sample(space, jax.random.key(0)))
    example = jax.eval_shape(lambda: zeros(space))
    assert jax.tree.structure(drawn) == jax.tree.structure(example)
    for a, b in zip(jax.tree.leaves(drawn), jax.tree.leaves(example), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


@CHOICES
def test_as_many_as_are_asked_for_come_at_once(space) -> None:
    drawn = jax.eval_shape(lambda: sample(space, jax.random.key(0), (2, 9)))
    alone = jax.tree.leaves(jax.eval_shape(lambda: zeros(space)))
    for leaf, one in zip(jax.tree.leaves(drawn), alone, strict=True):
        assert (leaf.shape, leaf.dtype) == ((2, 9, *one.shape), one.dtype)


def test_several_at_once_are_elements_that_differ() -> None:
    @jax.jit
    def draw_many(key):
        drawn = sample(MIXED, key, (100,))
        inside = jax.vmap(lambda x: contains(MIXED, x))(drawn)
        return drawn, inside, sample(SPACES["multi-discrete"], key, (100,))

    drawn, inside, choices = jax.device_get(draw_many(jax.random.key(1)))
    assert inside.all()
    assert np.all(np.ptp(drawn, axis=0) > 1)
    assert len(np.unique(choices, axis=0)) == 12


@CHOICES
def test_the_flat_size_is_gymnasiums(space) -> None:
    space.seed(0)
    assert flat_size(space) == spaces.flatten(space, space.sample()).size


@pytest.mark.parametrize("count", quick_first([2_000, 5_000]))
@pytest.mark.parametrize(
    "name",
    [
        "discrete from -2, 8 bits",
        "box of every kind of interval",
        "box int8",
        "box int with one bound",
        "box int with the other bound",
        "box int without bounds",
        "multi-discrete",
        "multi-binary",
    ],
)
def test_samples_are_distributed_as_gymnasiums(name: str, count: int) -> None:
    space, (drawn, *_) = SPACES[name], compare(name)
    space.seed(1)
    theirs = np.array([space.sample() for _ in range(count)], np.float64)
    ours = np.asarray(drawn, np.float64)
    for one, other in zip(
        theirs.reshape(count, -1).T, ours.reshape(COUNT, -1).T, strict=True
    ):
        assert stats.ks_2samp(one, other, method="asymp").pvalue > 0.001


def test_every_integer_between_the_bounds_is_drawn() -> None:
    for space in (spaces.Box(0, 255, (64,), np.uint8), spaces.Discrete(256)):
        assert set(np.unique(draw(space, 400 if space.shape else 9000))) == {
            *range(256)
        }


@pytest.mark.parametrize(
    ("space", "x"),
    [
        (spaces.Discrete(3), np.int32(3)),
        (spaces.Discrete(3), np.int32(-1)),
        (spaces.Discrete(3, start=1), np.int32(0)),
        (spaces.Discrete(3), np.float32(1)),
        (spaces.Discrete(3), np.array([1])),
        (spaces.Box(0, 1, (2,)), np.array([0, 1.5], np.float32)),
        (spaces.Box(0, 1, (2,)), np.array([0, np.nan], np.float32)),
        (spaces.Box(0, 1, (2,)), np.zeros(3, np.float32)),
        (spaces.Box(0, 255, (2,), np.uint8), np.zeros(2, np.float32)),
        (MIXED, np.array([-2, 0, 3, 0], np.float32)),
        (MIXED, np.array([0, 6, 3, 0], np.float32)),
        (MIXED, np.array([0, 0, 1, 0], np.float32)),
        (spaces.MultiDiscrete([3, 4]), np.array([2, 4])),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8)),
        (SPACES["tuple"], (np.int32(3), np.zeros(2, np.float32))),
        (SPACES["tuple"], (np.int32(0),)),
        (SPACES["dict"], {"a": np.int32(0)}),
    ],
)
def test_what_is_no_element_to_gymnasium_is_none_to_us(space, x) -> None:
    assert not space.contains(x)
    assert not contains(space, x)


def test_contains_runs_under_jit_and_vmap() -> None:
    inside = jax.jit(jax.vmap(lambda x: contains(spaces.Discrete(3, start=1), x)))
    np.testing.assert_array_equal(
        inside(jnp.arange(5)), [False, True, True, True, False]
    )


def test_64_bits_become_32() -> None:
    assert dtype(spaces.Discrete(2)) == np.int32
    assert dtype(SPACES["box float64"]) == np.float32
    assert dtype(SPACES["box uint8"]) == np.uint8


def test_bounds_beyond_32_bits_are_the_nearest_within() -> None:
    low, high = bounds(spaces.Box(-(2**40), 2**40, (1,), np.int64))
    assert (low[0], high[0]) == (-(2**31), 2**31 - 1)
    low, high = bounds(spaces.Box(-1e300, 1e300, (1,), np.float64))
    assert (low[0], high[0]) == (-INF, INF)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Discrete(2), "Discrete(2)"),
        (spaces.Discrete(2, start=1), "Discrete(2, start=1)"),
        (spaces.Box(-2, 2, (4,)), "Box(4,) in [-2, 2]"),
        (MIXED, "Box(4,)"),
        (spaces.Box(0, 255, (84, 84), np.uint8), "Box(84, 84) of uint8 in [0, 255]"),
        (spaces.Box(-INF, INF, (3,)), "Box(3,) in [-inf, inf]"),
        (spaces.MultiBinary(3), "MultiBinary(3)"),
        (SPACES["tuple"], "Tuple(Discrete(3), Box(2,) in [0, 1])"),
        (spaces.Dict({"a": spaces.Discrete(3)}), "Dict(a: Discrete(3))"),
    ],
)
def test_a_space_is_described_in_a_few_words(space, said: str) -> None:
    assert describe(space) == said


def test_a_space_without_a_fixed_shape_is_refused() -> None:
    text = spaces.Text(5)
    for function in (zeros, dtype, bounds, lambda x: sample(x, jax.random.key(0))):
        with pytest.raises(TypeError, match="Text"):
            function(text)
    with pytest.raises(ValueError, match="32 bits"):
        sample(spaces.Discrete(2**40), jax.random.key(0))


def test_arrays_of_bools_have_a_space():
    space = boolean_box(2, 3)
    assert space.shape == (2, 3)
    assert space.contains(np.eye(2, 3, dtype=bool))
    drawn = jax.eval_shape(lambda: sample(space, jax.random.key(0)))
    assert drawn.dtype == bool
