"""Canonical spaces: numbers worked out by hand, in NumPy and in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlcli.errors import RlcliError
from rlcli.spaces import contains, flatten, sample
from rlcli.spaces.canonical import canonical_action, canonical_observation

INF = np.inf
LARGEST = float(np.finfo(np.float32).max)
# Two bounds, two bounds, none, one, the other, constant, none in disguise.
LOW = np.array([0, -3, -INF, 1, -INF, 2, -LARGEST], np.float32)
HIGH = np.array([5, 3, INF, INF, 4, 2, LARGEST], np.float32)
MIXED = spaces.Box(LOW, HIGH)
FAR = spaces.Box(2**40, 2**40 + 5, (2,), np.int64)
EXTERNAL = np.array([[5, -3, 7, 1, 4, 2, 9], [2.5, 1.5, -7, 3, -2, 2, -9]], "f4")
CANONICAL = np.array([[1, -1, 7, 1, 4, 0, 9], [0, 0.5, -7, 3, -2, 0, -9]], "f4")


@pytest.mark.parametrize("numpy", [np, jnp])
def test_bounded_entries_are_measured_in_half_widths_from_the_middle(numpy):
    canonical = canonical_action(MIXED)
    low, high = [-1, -1, -INF, 1, -INF, 0, -INF], [1, 1, INF, INF, 4, 0, INF]
    np.testing.assert_array_equal(canonical.space.low, low)
    np.testing.assert_array_equal(canonical.space.high, high)
    found = canonical.to_canonical(numpy.asarray(EXTERNAL))
    np.testing.assert_array_equal(found, CANONICAL)
    back = canonical.to_external(numpy.asarray(CANONICAL))
    np.testing.assert_array_equal(back, EXTERNAL)
    assert isinstance(back, np.ndarray if numpy is np else jax.Array)
    assert back.dtype == found.dtype == np.float32
    assert canonical.log_volume == pytest.approx(np.log(2.5) + np.log(3))


@pytest.mark.parametrize("numpy", [np, jnp])
def test_actions_beyond_a_bound_become_the_bound(numpy):
    canonical = canonical_action(MIXED)
    beyond = numpy.asarray(np.array([1.5, -2, 9, 0, 6, 1, 8], "f4"))
    clipped, scaled = canonical.to_external(beyond), canonical.scale_to_external(beyond)
    np.testing.assert_array_equal(clipped, [5, -3, 9, 1, 4, 2, 8])
    np.testing.assert_array_equal(scaled, [6.25, -6, 9, 0, 6, 3, 8])
    # One element without leading axes is enough; more of them are possible.
    many = numpy.broadcast_to(beyond, (2, 3, 7))
    assert np.all(np.asarray(canonical.to_external(many)) == np.asarray(clipped))


@pytest.mark.parametrize("exponent", [-20, -10, 0, 10, 20])
def test_half_widths_that_are_powers_of_two_are_exact(exponent):
    half = 2.0**exponent
    canonical = canonical_action(spaces.Box(-half, half, (1_000,)))
    actions = np.random.default_rng(0).uniform(-1, 1, 1_000).astype("f4")
    external = canonical.to_external(actions)
    np.testing.assert_array_equal(external, np.float32(half) * actions)
    np.testing.assert_array_equal(canonical.to_canonical(external), actions)
    in_jax = jax.jit(canonical.to_external)(actions)
    np.testing.assert_array_equal(in_jax, external)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_external_elements_are_in_the_space_and_come_back(dtype):
    rng = np.random.default_rng(1)
    middle = rng.normal(size=50) * 10.0 ** rng.integers(-3, 3, 50)
    half = 10.0 ** rng.integers(-3, 3, 50)
    low, high = (middle - half).astype(dtype), (middle + half).astype(dtype)
    space = spaces.Box(low, high, dtype=dtype)
    canonical = canonical_action(space)
    space.seed(0)
    external = np.stack([space.sample() for _ in range(20)])
    found = canonical.to_canonical(external)
    assert found.dtype == (np.float16 if dtype == np.float16 else np.float32)
    back = canonical.to_external(found)
    assert back.dtype == dtype
    assert all(space.contains(row) for row in back)
    spread = np.maximum(np.abs(low), np.abs(high))
    resolution = np.finfo(found.dtype).eps * (half + spread)
    assert np.all(np.abs(back - external) <= 4 * resolution)
    for corner in (np.full((50,), -2, "f4"), np.full((50,), 2, "f4")):
        assert space.contains(canonical.to_external(corner))


def test_a_box_in_its_canonical_units_stays_as_it_is():
    for space in (spaces.Box(-1, 1, (3,)), spaces.Box(-INF, INF, (2, 2))):
        canonical = canonical_action(space)
        assert canonical.space == space
        assert canonical.log_volume == 0
        element = np.full(space.shape, 0.3, "f4")
        np.testing.assert_array_equal(canonical.to_external(element), element)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-3_000, 7_000, (2,), np.int64),
        spaces.Box(0, 60_000, (2,), np.uint16),
        spaces.MultiBinary(2),
        spaces.Box(5, INF, (2,), np.int32),
    ],
    ids=str,
)
def test_many_integers_keep_their_units(space):
    canonical = canonical_action(space)
    space.seed(0)
    element = space.sample()
    found = canonical.to_canonical(element)
    assert found.dtype.itemsize <= 4
    np.testing.assert_array_equal(found, element)
    assert space.contains(canonical.to_external(found))
    if isinstance(space, spaces.Box):
        assert space.contains(canonical.to_external(found + found.dtype.type(100)))


@pytest.mark.parametrize(
    ("space", "external", "expected"),
    [
        (spaces.Box(-3, 7, (2,), np.int64), [[-3, 7], [0, 1]], [[0, 10], [3, 4]]),
        (spaces.Box(0, 255, (1,), np.uint8), [[255], [0]], [[255], [0]]),
        (spaces.Box(0, 1, (2,), np.bool_), [[True, False]], [[1, 0]]),
        (spaces.Box(2**40, 2**40 + 5, (), np.int64), [2**40 + 5], [5]),
        (spaces.Box(-100, 100, (1,), np.int8), [[100], [-100]], [[200], [0]]),
        (spaces.Box(7, 7, (1,), np.int32), [[7]], [[0]]),
    ],
    ids=str,
)
def test_few_integers_are_choices(space, external, expected):
    canonical = canonical_action(space)
    low, high = (np.asarray(bound, np.int64) for bound in (space.low, space.high))
    np.testing.assert_array_equal(canonical.space.nvec, high - low + 1)
    found = canonical.to_canonical(np.array(external, space.dtype))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.int32
    back = canonical.to_external(found)
    assert back.dtype == space.dtype
    np.testing.assert_array_equal(back, external)


@pytest.mark.parametrize(
    ("space", "external", "expected"),
    [
        (spaces.Discrete(3, start=5), 6, 1),
        (spaces.Discrete(3, start=-2), -2, 0),
        (spaces.Discrete(9, start=2**40), 2**40 + 8, 8),  # beyond 32 bits
        (spaces.Discrete(3, start=5, dtype=np.int8), 7, 2),
        (spaces.Discrete(201, start=-100, dtype=np.int16), 100, 200),
        (spaces.MultiDiscrete([3, 4], start=[0, -1]), [2, -1], [2, 0]),
        (spaces.MultiDiscrete([[3], [4]], start=[[7], [8]]), [[7], [10]], [[0], [2]]),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [canonical_action, canonical_observation])
def test_discrete_numbers_start_at_0(space, external, expected, make):
    canonical = make(space)
    start = canonical.space.start
    np.testing.assert_array_equal(start, np.zeros_like(start))
    found = canonical.to_canonical(np.array([external] * 2, space.dtype))
    np.testing.assert_array_equal(found, [expected] * 2)
    assert found.dtype.itemsize <= 4
    back = canonical.to_external(found)
    assert back.dtype == space.dtype
    np.testing.assert_array_equal(back, [external] * 2)
    assert space.contains(back[0])


@pytest.mark.slow
def test_members_are_converted_one_by_one():
    space = spaces.Dict(
        {
            "b": spaces.Tuple([spaces.Discrete(3, start=4), spaces.Box(0, 4, (1,))]),
            "a": spaces.Box(-2, 2, (1,)),
        }
    )
    canonical = canonical_action(space)
    element = {"a": np.float32([[1], [2]]), "b": (np.array([4, 6]), np.float32([[0]]))}
    found = canonical.to_canonical(element)
    assert list(found) == ["a", "b"]
    np.testing.assert_array_equal(found["a"], [[0.5], [1]])
    np.testing.assert_array_equal(found["b"][0], [0, 2])
    np.testing.assert_array_equal(found["b"][1], [[-1]])
    back = canonical.to_external(found)
    jax.tree.map(np.testing.assert_array_equal, back, element)
    assert canonical.log_volume == pytest.approx(2 * np.log(2))
    drawn = sample(canonical.space, jax.random.key(0), (3,))
    for row in range(3):
        external = jax.tree.map(lambda leaf, row=row: leaf[row], drawn)
        assert contains(space, canonical.to_external(external))


def test_observations_keep_the_units_of_a_box():
    space = spaces.Dict(
        {"x": spaces.Box(0, 10, (2,), np.float64), "n": spaces.Discrete(2, start=1)}
    )
    canonical = canonical_observation(space)
    assert canonical.space["x"] == spaces.Box(0, 10, (2,), np.float32)
    found = canonical.to_canonical({"x": np.array([0.5, 10]), "n": np.array(2)})
    np.testing.assert_array_equal(found["x"], [0.5, 10])
    assert found["n"] == 1


@pytest.mark.parametrize("space", [spaces.Discrete(3, start=2**40), FAR], ids=str)
def test_numbers_beyond_32_bits_are_refused_where_jax_would_change_them(space):
    canonical = canonical_action(space)
    choice = np.zeros(space.shape, np.int32)
    assert space.contains(canonical.to_external(choice))  # NumPy has 64 bits
    for function in (canonical.to_external, canonical.scale_to_external):
        with pytest.raises(RlcliError, match="32 bits"):
            function(jnp.asarray(choice))


def test_observed_integers_beyond_32_bits_are_refused():
    canonical = canonical_observation(FAR)
    with pytest.raises(RlcliError, match="32 bits"):
        canonical.to_canonical(np.full((3, 2), 2**40 + 1))
    np.testing.assert_array_equal(canonical.to_canonical(np.full((3, 2), 7)), 7)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_actions_beyond_the_largest_float_become_the_bound(dtype):
    largest = np.finfo(dtype).max / 2
    canonical = canonical_action(spaces.Box(-largest, largest, (2,), dtype))
    found = canonical.to_external(np.array([5, -5], canonical.space.dtype))
    np.testing.assert_array_equal(found, np.array([largest, -largest], dtype))


def test_a_space_without_a_fixed_shape_is_refused():
    with pytest.raises(RlcliError, match="environment `e`: its action space is Text"):
        canonical_action(spaces.Text(3), "environment `e`: its action space")


@pytest.mark.parametrize("empty", [spaces.Dict({}), spaces.Tuple(())])
def test_a_space_without_members_is_refused(empty):
    both = spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "y": empty})
    for space in (empty, both):
        with pytest.raises(
            RlcliError, match=r"is (Dict|Tuple)\(\), which has no members"
        ):
            canonical_observation(space)
    assert flatten(both, {"x": jnp.ones(2), "y": ()}).shape == (2,)
