"""Elements of spaces: sampling and preprocessing."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from rlcli.utils import check_preprocessors, default_preprocessor, safe_sample

FLOAT32, FLOAT64 = np.finfo("float32"), np.finfo("float64")
INT64, UINT64 = np.iinfo("int64"), np.iinfo("uint64")
SPACES = {
    "box": spaces.Box(-2, 3, (2, 3)),
    "scalar": spaces.Box(0, 1, ()),
    "all of float32": spaces.Box(FLOAT32.min, FLOAT32.max, (5,)),
    "all of float64": spaces.Box(FLOAT64.min, FLOAT64.max, (5,), np.float64),
    "no bounds": spaces.Box(-np.inf, np.inf, (5,), np.float16),
    "one bound": spaces.Box(
        np.array([5, -np.inf], np.float32), np.array([np.inf, -7], np.float32)
    ),
    "a single point": spaces.Box(0.1, 0.1, (3,)),
    "pixels": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "all of int64": spaces.Box(INT64.min, INT64.max, (5,), np.int64),
    "all of uint64": spaces.Box(0, UINT64.max, (5,), np.uint64),
    "truth": spaces.Box(0, 1, (5,), np.bool_),
    "discrete": spaces.Discrete(7, start=-3),
    "huge discrete": spaces.Discrete(2**40),
    "multi-discrete": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multi-binary": spaces.MultiBinary([2, 3]),
    "text": spaces.Text(5),
    "sequence": spaces.Sequence(spaces.Discrete(3)),
    "nested": spaces.Dict(
        {"b": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))])}
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_sample_lies_in_its_space(name):
    space = SPACES[name]
    for seed in [None, *range(20)]:
        assert space.contains(safe_sample(space, seed))


@pytest.mark.parametrize("name", ["box", "pixels", "discrete", "nested", "text"])
def test_samples_depend_only_on_the_seed_and_do_not_change_the_space(name):
    space = SPACES[name]
    space.seed(0)
    expected = str(space.sample())
    space.seed(0)
    samples = [str(safe_sample(space, seed)) for seed in (1, 1, *range(9))]
    assert samples[0] == samples[1]
    assert len({*samples}) > 1
    assert str(space.sample()) == expected


def test_without_a_seed_the_generator_of_the_space_is_used():
    space = spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(1000)])
    samples = []
    for _ in range(2):
        space.seed(5)
        samples.append(str([safe_sample(space) for _ in range(3)]))
    assert samples[0] == samples[1]


def test_samples_cover_a_bounded_box(is_uniform):
    box = spaces.Box(np.float32([-1, 10]), np.float32([1, 20]))
    actual = np.array([safe_sample(box, seed) for seed in range(2_000)])
    assert is_uniform(actual, box.low, box.high)
    pixels = np.array([safe_sample(SPACES["pixels"], seed) for seed in range(200)])
    assert (pixels.min(), pixels.max()) == (0, 255)


def test_other_objects_than_spaces_are_refused():
    with pytest.raises(TypeError, match="expected a space"):
        safe_sample([1, 2])


def test_elements_are_preprocessed_by_the_type_of_their_space():
    key = jax.random.key(0)
    box = default_preprocessor(spaces.Box(-1, 1, (2,)))(key, np.array([0.5, 9.0]))
    assert box.tolist() == [[0.5, 1]]
    discrete = default_preprocessor(spaces.Discrete(3, start=5))
    assert discrete(key, 6).tolist() == [[0, 1, 0]]
    assert discrete(key, np.array([5, 7])).tolist() == [[1, 0, 0], [0, 0, 1]]
    multi = default_preprocessor(spaces.MultiDiscrete([2, 3], start=[0, 1]))
    assert [one.tolist() for one in multi(key, np.array([1, 1]))] == [
        [[0, 1]],
        [[1, 0, 0]],
    ]
    assert [one.shape for one in multi(key, np.ones((7, 2), int))] == [(7, 2), (7, 3)]
    binary = default_preprocessor(spaces.MultiBinary(3))(key, np.array([1, 0, 1]))
    assert binary.dtype == np.float32
    assert binary.tolist() == [[1, 0, 1]]
    space = spaces.Dict(
        {
            "x": spaces.Box(0, 255, (2, 2), np.uint8),
            "y": spaces.Tuple([spaces.Discrete(2)]),
        }
    )
    nested = default_preprocessor(space)(key, space.sample())
    assert jax.tree.map(np.shape, nested) == {"x": (1, 2, 2), "y": ((1, 2),)}
    assert nested["x"].dtype == np.uint8


def test_an_unsupported_space_has_no_preprocessor():
    with pytest.raises(TypeError, match="got Text"):
        default_preprocessor(spaces.Text(3))


def _identity(rng, x):
    return {"x": jax.random.uniform(rng) + x}


BOX = spaces.Box(-1, 1, (2,))
DIFFERENT = {
    "other numbers": lambda rng, x: {"x": jax.random.uniform(rng) + x + 1e-3},
    "another structure": lambda rng, x: jax.random.uniform(rng) + x,
    "another shape": lambda rng, x: {"x": jax.random.uniform(rng) + x[None]},
    "no numbers": lambda rng, x: {"x": "garbage"},
    "its own randomness": lambda rng, x: {
        "x": jax.random.uniform(jax.random.key(0)) + x
    },
}


def test_equal_preprocessors_match_including_random_ones():
    assert check_preprocessors(
        BOX, _identity, lambda rng, x: _identity(rng, x), _identity
    )
    nan = [lambda rng, x: x * np.nan, lambda rng, x: x * np.nan]
    assert check_preprocessors(BOX, *nan, num_samples=2, random_seed=1)
    texts = [lambda rng, x: ["a", 1]] * 2
    assert check_preprocessors(BOX, *texts, num_samples=1)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_preprocessors_do_not_match(name):
    assert not check_preprocessors(BOX, _identity, _identity, DIFFERENT[name])


def test_the_seed_determines_the_tested_elements():
    seen = {}
    for seed in (1, 1, 2):
        tried = []
        noting = [lambda rng, x, tried=tried: tried.append(x.tolist())] * 2
        check_preprocessors(BOX, *noting, num_samples=3, random_seed=seed)
        assert len(tried) == 6
        assert seen.setdefault(seed, tried) == tried
    assert seen[1] != seen[2]


def test_fewer_than_two_preprocessors_are_refused():
    for several in [(), (_identity,)]:
        with pytest.raises(ValueError, match="two functions or more"):
            check_preprocessors(BOX, *several)
    with pytest.raises(ValueError, match="at least one sample"):
        check_preprocessors(BOX, _identity, _identity, num_samples=0)


def test_the_default_preprocessor_is_that_of_a_gymnasium_environment():
    env = gymnasium.make("CartPole-v1")
    ours = default_preprocessor(env.observation_space)
    by_hand = [lambda rng, x: np.asarray(x)[None]]
    assert check_preprocessors(env.observation_space, ours, *by_hand, num_samples=5)
