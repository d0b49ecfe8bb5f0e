"""Functions of observations, beside Gymnasium's and NumPy's."""

import jax
import numpy as np
import pytest
from gymnasium import spaces

from rlcli import registry, utils
from rlcli.assembly.preprocessing import compose
from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.preprocessing import preprocess

BOX = spaces.Box(-2.0, 3.0, (2, 3), np.float32)
CHOICES = spaces.MultiDiscrete([3, 4], start=[1, 0])
TREE = spaces.Dict(
    {
        "a": spaces.Discrete(4, start=2),
        "b": spaces.Tuple((BOX, spaces.MultiBinary(3), CHOICES)),
    }
)
SPACES = [BOX, CHOICES, spaces.MultiBinary([2, 2]), spaces.Discrete(5), TREE]


def sample_space(space, count=5):
    space.seed(0)
    return [space.sample() for _ in range(count)]


def build_function(steps, space):
    """What is seen, and the function of one observation, compiled."""
    new_space, function = compose(steps, space)
    return new_space, jax.jit(function)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_flatten_matches_gymnasium(space):
    new_space, function = build_function([preprocess.flatten()], space)
    for obs in sample_space(space):
        actual = np.asarray(function(obs))
        np.testing.assert_allclose(actual, spaces.flatten(space, obs), rtol=1e-6)
        assert new_space.contains(actual)


def test_discrete_members_are_one_hot_at_any_depth():
    new_space, function = build_function([preprocess.one_hot()], TREE)
    for obs in sample_space(TREE):
        actual = jax.device_get(function(obs))
        expected = spaces.flatten(TREE["a"], obs["a"])
        np.testing.assert_array_equal(actual["a"], expected)
        box, binary, choices = actual["b"]
        np.testing.assert_array_equal(box, obs["b"][0])
        np.testing.assert_array_equal(binary, obs["b"][1])
        np.testing.assert_array_equal(choices, spaces.flatten(CHOICES, obs["b"][2]))
        assert new_space.contains(actual)


class Named(spaces.Dict):
    """A space of a user, whose constructor takes other arguments."""

    def __init__(self, size: int) -> None:
        super().__init__({"a": spaces.Discrete(size)})


def test_members_of_a_space_of_a_user_are_joined_as_a_plain_dict():
    built, function = preprocess.one_hot().build(Named(3))
    assert type(built) is spaces.Dict
    np.testing.assert_array_equal(function({"a": np.int32(1)})["a"], [0, 1, 0])


def test_scale_maps_bounds_to_zero_and_one():
    uneven = spaces.Box(np.float32([-1, 0]), np.float32([3, 10]))
    new_space, function = build_function([preprocess.scale()], uneven)
    np.testing.assert_allclose(function(np.float32([0, 4])), [0.25, 0.4])
    assert (new_space.low.min(), new_space.high.max()) == (0, 1)
    for bound in (np.inf, np.finfo(np.float32).max):  # without a warning
        with pytest.raises(RlcliError, match=r"cannot apply `scale` to Box\(2,\)"):
            compose([preprocess.scale()], spaces.Box(-bound, bound, (2,)))


def test_channels_come_last():
    image = spaces.Box(0, 255, (4, 6, 5), np.uint8)
    new_space, function = build_function([preprocess.channels_last()], image)
    for obs in sample_space(image):
        np.testing.assert_array_equal(function(obs), np.moveaxis(obs, 0, -1))
    assert (new_space.shape, new_space.dtype) == ((6, 5, 4), np.uint8)


def test_member_selects_one_entry_of_a_dict():
    new_space, function = build_function([preprocess.member(of="b")], TREE)
    obs = sample_space(TREE, 1)[0]
    assert new_space == TREE["b"]
    jax.tree.map(np.testing.assert_array_equal, function(obs), obs["b"])
    with pytest.raises(RlcliError, match="a Dict with a member `c`"):
        compose([preprocess.member(of="c")], TREE)


def test_member_selects_several_entries_of_a_dict():
    tree = spaces.Dict({"position": BOX, "goal": BOX, "image": spaces.MultiBinary(3)})
    step = preprocess.member(of=["position", "goal"])
    new_space, function = build_function([step], tree)
    assert new_space == spaces.Dict({"position": BOX, "goal": BOX})
    for obs in sample_space(tree, 2):
        expected = {name: obs[name] for name in ("position", "goal")}
        jax.tree.map(np.testing.assert_array_equal, function(obs), expected)
        assert jax.tree.structure(function(obs)) == jax.tree.structure(expected)
    with pytest.raises(RlcliError, match="a Dict with a member `speed`"):
        compose([preprocess.member(of=["goal", "speed"])], tree)
    with pytest.raises(RlcliError, match="selects nothing"):
        preprocess.member(of=[])


def test_entries_are_selected_along_the_last_axis():
    low, high = np.float32([[-1, -2, -3, -4], [-5, -6, -7, -8]]), np.ones((2, 4), "f4")
    space = spaces.Box(low, high)
    new_space, function = build_function([preprocess.entries(of=[2, 0])], space)
    assert new_space == spaces.Box(low[:, [2, 0]], high[:, [2, 0]])
    for obs in sample_space(space, 3):
        np.testing.assert_array_equal(function(obs), obs[:, [2, 0]])
    with pytest.raises(RlcliError, match="a Box with over 4 entries"):
        compose([preprocess.entries(of=[4])], space)
    with pytest.raises(RlcliError, match="a Box with over 0 entries"):
        compose([preprocess.entries(of=[0])], spaces.Discrete(3))
    with pytest.raises(RlcliError, match="selects nothing"):
        preprocess.entries(of=[])


def test_differences_are_those_of_the_toolbox():
    """The toolbox has frames on the last axis, a stack has them in a row."""
    step = preprocess.diff_transform(frames=4)
    frames = np.random.default_rng(0).normal(size=(4, 3)).astype("f4")
    stack = spaces.Box(-np.inf, np.inf, (12,), np.float32)
    _, function = build_function([step], stack)
    expected = np.asarray(utils.diff_transform(frames.T)).T
    np.testing.assert_allclose(function(frames.ravel()), expected.ravel(), atol=1e-5)
    with pytest.raises(RlcliError, match="`one_hot` converts discrete values"):
        compose([step], CHOICES)


def test_functions_are_composed_and_the_mask_is_removed():
    shown = spaces.Dict({"view": TREE, action_masks.MASK: spaces.MultiBinary(3)})
    steps = [preprocess.flatten(), preprocess.frame_stack(frames=2)]
    new_space, function = compose(steps, shown)
    obs = sample_space(shown, 1)[0]
    assert new_space.shape == spaces.flatten_space(TREE).shape
    np.testing.assert_allclose(function(obs), spaces.flatten(TREE, obs["view"]))


def test_all_functions_are_registered():
    expected = {"channels_last", "diff_transform", "flatten", "frame_stack", "one_hot"}
    assert set(registry.names("preprocess")) >= {*expected, "member", "scale"}
