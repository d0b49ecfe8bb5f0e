"""Environments whose spaces are unusual: any observation with any action, by name.

`Host` is an environment of Gymnasium, `pure` the same kind of task as a core in JAX.
The state after a step depends on every number of the action, but not on its rounding,
and the reward on the exact numbers: a run that is resumed only continues equally if it
plays the same actions. Episodes have at most 13 steps.
"""

from __future__ import annotations

import zlib
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import rlcli.spaces
from rlcli.types import Core, TimeStep

_INF = np.inf


def _box(low: Any, high: Any, dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


BOXES = {
    "box": _box([-1, -1], [1, 1]),
    "scalar_box": spaces.Box(-1, 1, ()),
    "matrix_box": spaces.Box(-1, 1, (2, 2)),
    "mixed_box": _box([0, -np.pi / 4, -100], [5, np.pi / 4, 300]),
    "half_infinite_box": _box([-1, -_INF, 0], [_INF, 1, 2]),
    "infinite_box": spaces.Box(-_INF, _INF, (2,)),
    "narrow_box": spaces.Box(-0.001, 0.001, (2,)),
    "wide_box": spaces.Box(-1_000, 1_000, (2,)),
    "equal_bounds_box": _box([-1, 3], [1, 3]),
    "float64_box": spaces.Box(-2, 5, (2,), np.float64),
    "integer_box": spaces.Box(-10, 10, (2,), np.int64),
    "byte_box": spaces.Box(0, 255, (2,), np.uint8),
}
DISCRETE = {
    "discrete": spaces.Discrete(3),
    "one": spaces.Discrete(1),
    "start": spaces.Discrete(3, start=5),
    "negative_start": spaces.Discrete(4, start=-2),
}
_MULTIPLE = {
    "multi_discrete": spaces.MultiDiscrete([3, 2]),
    "multi_discrete_start": spaces.MultiDiscrete([3, 2], start=[1, -1]),
    "multi_binary": spaces.MultiBinary(3),
}
ACTIONS: dict[str, spaces.Space] = {
    **DISCRETE,
    **_MULTIPLE,
    **BOXES,
    "empty_box": spaces.Box(0, 1, (0,)),
    "dict": spaces.Dict(
        {"dials": _MULTIPLE["multi_discrete_start"], "push": BOXES["mixed_box"]}
    ),
    "tuple": spaces.Tuple((DISCRETE["start"], BOXES["box"])),
}
IMAGES = {
    "image": spaces.Box(0, 255, (10, 10, 3), np.uint8),
    "image_channels_first": spaces.Box(0, 255, (3, 10, 10), np.uint8),
    "image_gray": spaces.Box(0, 255, (10, 10), np.uint8),
    "image_float": spaces.Box(0, 1, (10, 10, 2)),
    "image_bool": rlcli.spaces.boolean_box(10, 10, 2),
}
OBSERVATIONS: dict[str, spaces.Space] = {
    **DISCRETE,
    **_MULTIPLE,
    **BOXES,
    **IMAGES,
    "multi_discrete_matrix": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
    "multi_binary_matrix": spaces.MultiBinary([2, 2]),
    "bool_box": rlcli.spaces.boolean_box(3),
    "empty_box": spaces.Box(0, 1, (0,)),
    "dict": spaces.Dict(
        {
            "zeta": BOXES["half_infinite_box"],
            "alpha": DISCRETE["start"],
            "mid": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
        }
    ),
    "dict_with_empty": spaces.Dict(
        {"none": spaces.Box(0, 1, (0,)), "some": BOXES["box"]}
    ),
    "nested": spaces.Dict(
        {
            "pair": spaces.Tuple((_MULTIPLE["multi_binary"], BOXES["integer_box"])),
            "dict": spaces.Dict({"x": BOXES["scalar_box"], "n": DISCRETE["discrete"]}),
        }
    ),
    "tuple": spaces.Tuple((DISCRETE["negative_start"], BOXES["mixed_box"])),
    # With a Discrete action, `action_mask` allows the first action and some others.
    "masked": spaces.Dict({"x": BOXES["box"]}),
}
LONGEST = 13  # steps of an episode
_LEVELS = 8  # of an action that count, in half the width of its space


class Host(gymnasium.Env):
    """An environment of Gymnasium with spaces from the tables.

    With `careless` it returns the arrays that it keeps, and changes in place the
    actions that it is given: both are its own business.
    """

    def __init__(
        self, observation: str = "box", action: str = "discrete", careless: bool = False
    ) -> None:
        self.action_space = ACTIONS[action]
        self.observation_space = _with_mask(
            OBSERVATIONS[observation], observation, self.action_space
        )
        self._careless = careless
        self._kept: Any = None
        self._state = self._time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._state, self._time = int(self.np_random.integers(2**31)), 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(action)]
        flat = [leaf.ravel().astype(np.float64) for leaf in arrays]
        levels = np.round(_LEVELS * np.concatenate(flat) / _scales(self.action_space))
        self._state = zlib.crc32(levels.astype(np.int32).tobytes(), self._state)
        self._time += 1
        total = sum(float(np.sum(leaf, dtype=np.float64)) for leaf in arrays)
        if self._careless:
            for leaf in arrays:
                if leaf.shape and leaf.flags.writeable:
                    leaf[...] = 0
        terminated = self._state % 11 == 0
        truncated = self._time >= LONGEST
        return self._observe(), float(np.tanh(total)), terminated, truncated, {}

    def _observe(self) -> Any:
        element = _draw(self.observation_space, np.random.default_rng(self._state))
        if not self._careless:
            return element
        if self._kept is None or not isinstance(self._kept, np.ndarray):
            self._kept = element
        elif self._kept.shape:
            self._kept[...] = element
        return self._kept


def _with_mask(space: spaces.Space, name: str, action: spaces.Space) -> spaces.Space:
    if name != "masked" or not isinstance(action, spaces.Discrete):
        return space
    mask = spaces.MultiBinary(int(action.n))
    return spaces.Dict({"x": BOXES["box"], "action_mask": mask})


def _scales(space: spaces.Space) -> np.ndarray:
    """Half the width of a space for each number of its flat elements; 1 if infinite."""
    if members := rlcli.spaces.members(space):
        return np.concatenate([_scales(each) for each in members.values()])
    size = int(np.prod(space.shape or ()))
    if not isinstance(space, spaces.Box):
        return np.ones(size)
    low, high = (bound.astype(np.float64) for bound in (space.low, space.high))
    width = np.ravel(high - low) / 2
    return np.where(np.isfinite(width) & (width > 0), width, 1)


def _draw(space: spaces.Space, rng: np.random.Generator) -> Any:
    """An element of a space, from this generator."""
    match space:
        case spaces.Dict():
            element = {name: _draw(each, rng) for name, each in space.items()}
            if "action_mask" in element:
                element["action_mask"][0] = 1
            return element
        case spaces.Tuple():
            return tuple(_draw(each, rng) for each in space.spaces)
        case spaces.Discrete():
            return space.start + rng.integers(space.n)
        case spaces.MultiDiscrete():
            choice = (rng.random(space.shape) * space.nvec).astype(space.dtype)
            return choice + space.start
        case spaces.MultiBinary():
            return rng.integers(0, 2, space.shape).astype(space.dtype)
    assert isinstance(space, spaces.Box)
    low = np.where(np.isfinite(space.low), space.low, np.minimum(space.high, 2) - 4)
    high = np.where(np.isfinite(space.high), space.high, low + 4)
    whole = space.dtype.kind in "iub"
    element = rng.uniform(low, high + whole, space.shape)
    element = np.floor(element) if whole else element
    return np.asarray(np.clip(element, space.low, space.high), space.dtype)


def pure(*, observation: str = "box", action: str = "discrete") -> Core:
    """A core in JAX with spaces from the tables."""
    action_space = ACTIONS[action]
    observation_space = _with_mask(OBSERVATIONS[observation], observation, action_space)

    scales = _scales(action_space).astype(np.float32)

    def observe(state: Any) -> Any:
        element = rlcli.spaces.sample(observation_space, jax.random.key(state[0]))
        if isinstance(element, dict) and "action_mask" in element:
            element["action_mask"] = element["action_mask"].at[0].set(1)
        return element

    def reset(key: Any) -> Any:
        state = jax.random.bits(key), jnp.uint32(0)
        return state, observe(state)

    def step(state: Any, action: Any, noise: Any) -> Any:
        del noise
        mixed, time = state
        leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(action)]
        numbers = jnp.concatenate([leaf.astype(jnp.float32) for leaf in leaves])
        levels = jnp.round(_LEVELS * numbers / scales).astype(jnp.int32)
        for level in levels.astype(jnp.uint32):
            mixed = (mixed ^ level) * jnp.uint32(2_654_435_761) + jnp.uint32(1)
        mixed ^= mixed >> 15
        state = mixed, time + 1
        terminated = mixed % 11 == 0
        obs, reward = observe(state), jnp.tanh(numbers.sum())
        last = terminated | (time + 1 >= LONGEST)
        discount = 1 - terminated.astype(jnp.float32)
        return state, TimeStep(obs, obs, reward, discount, last, info={})

    return Core(reset, step, observation_space, action_space)


class Says(gymnasium.Env):
    """Says a text, and shows a number and any number of numbers."""

    observation_space = spaces.Dict(
        {
            "said": spaces.Text(20),
            "seen": spaces.Box(0, 9, (2,), np.float32),
            "many": spaces.Sequence(spaces.Discrete(3)),
        }
    )
    action_space = spaces.Discrete(2)

    def _observe(self, said):
        return {"said": said, "seen": np.full(2, 3, np.float32), "many": (1, 2)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe("Go to A"), {}

    def step(self, action):
        return self._observe("a, go!"), 1.0, False, False, {}
