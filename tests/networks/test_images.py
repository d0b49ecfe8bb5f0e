"""Torsos for images, against loops over pixels and published numbers."""

import gymnasium
import haiku as hk
import jax
import numpy as np
import pytest
from random_trees import normal_like

from rlcli.errors import RlcliError
from rlcli.networks.functions import separate_network, shared_network
from rlcli.networks.heads import action_values_head, return_head
from rlcli.networks.images import Convolution, cnn, conv_as_matmul, residual
from rlcli.networks.inputs import Pair, image_reader

BYTES = gymnasium.spaces.Box(0, 255, (10, 10, 4), np.uint8)
GRID = gymnasium.spaces.Box(0.0, 1.0, (6, 5, 2), np.float32)
PLACE = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
BOTH = gymnasium.spaces.Dict({"board": GRID, "turn": gymnasium.spaces.Discrete(2)})


def sample_space(space, count, seed=0):
    space.seed(seed)
    rows = [space.sample() for _ in range(count)]
    return jax.tree.map(lambda *each: np.stack(each), *rows)


def random_params(network, seed=0):
    """Random parameters with the shapes of a network."""
    return normal_like(jax.eval_shape(network.init, jax.random.key(0)), seed, 0.3)


def numbers(params):
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("shape", "kernel", "stride"),
    [((7, 6, 2), 3, 1), ((8, 9, 1), 4, 2), ((7, 7, 3), 3, 2), ((9, 8, 2), 2, 3)],
)
def test_a_convolution_is_a_sum_over_windows(shape, kernel, stride):
    rng = np.random.default_rng(0)
    image = rng.normal(size=(2, *shape)).astype("f4")
    made = hk.without_apply_rng(
        hk.transform(lambda x: Convolution(3, kernel, stride)(x))
    )
    shapes = jax.eval_shape(made.init, jax.random.key(0), image)
    params = jax.tree.map(lambda s: rng.normal(size=s.shape).astype("f4"), shapes)
    (layer,) = params.values()
    high, wide = ((n - kernel) // stride + 1 for n in shape[:2])
    expected = np.empty((2, high, wide, 3))
    for i in range(high):
        for j in range(wide):
            top, left = i * stride, j * stride
            window = image[:, top : top + kernel, left : left + kernel]
            expected[:, i, j] = np.einsum("nabc,abcd->nd", window, layer["w"])
    actual = jax.jit(made.apply)(params, image)
    np.testing.assert_allclose(actual, expected + layer["b"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("kernel", [2, 3])
def test_the_matrix_product_equals_the_convolution_of_accelerators(padding, kernel):
    rng = np.random.default_rng(0)
    image = rng.normal(size=(2, 5, 6, 3)).astype("f4")
    weights = rng.normal(size=(kernel, kernel, 3, 4)).astype("f4")

    @jax.jit
    def convolutions(image, weights):
        sizes = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
        convolve = jax.lax.conv_general_dilated
        expected = convolve(image, weights, (1, 1), padding, **sizes)
        return conv_as_matmul(image, weights, padding), expected

    actual, expected = convolutions(image, weights)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("preset", "shape", "expected"),
    # 6 actions: counted by hand, and published for the network of Mnih et al.
    [("minatar", (10, 10, 4), 592 + 131_200 + 774), ("atari", (84, 84, 4), 1_687_206)],
)
def test_a_preset_has_the_parameters_of_its_paper(preset, shape, expected):
    space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
    network = separate_network("q", cnn(preset=preset), action_values_head(6), space)
    assert numbers(jax.eval_shape(network.init, jax.random.key(0))) == expected


def test_options_override_the_preset():
    torso = cnn(channels=[2, 3], kernels=[3, 2], strides=[1, 2], layers=[5])
    network = separate_network("q", torso, action_values_head(6), BYTES)
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    expected = (9 * 4 * 2 + 2) + (4 * 2 * 3 + 3) + (4 * 4 * 3 * 5 + 5) + (5 * 6 + 6)
    assert numbers(shapes) == expected


def test_uint8_images_are_scaled_to_0_to_1_and_others_are_unchanged():
    seen = sample_space(BYTES, 3)
    np.testing.assert_allclose(image_reader(BYTES)(seen)[0], seen / 255.0, rtol=1e-6)
    board = sample_space(GRID, 3)
    np.testing.assert_array_equal(image_reader(GRID)(board)[0], board)
    lit = gymnasium.spaces.Box(0, 1, (4, 4, 2), bool)
    np.testing.assert_array_equal(
        image_reader(lit)(sample_space(lit, 3))[0], sample_space(lit, 3)
    )


@pytest.mark.parametrize(
    ("make", "torso"),
    [
        (separate_network, cnn()),
        (shared_network, cnn()),
        (separate_network, residual(width=4, blocks=1, channels=[2])),
    ],
)
def test_images_are_read_with_the_other_members(make, torso):
    """Every member changes the outputs, and the shapes are those of all networks."""
    network = make("q", torso, action_values_head(4), BOTH)
    params = random_params(network)
    leaves, tree = jax.tree.flatten(sample_space(BOTH, 6))
    # The observations, and copies with one changed member each.
    sets = [leaves]
    for index, leaf in enumerate(leaves):
        sets.append([*leaves[:index], 1 - leaf, *leaves[index + 1 :]])
    obs = jax.tree.map(lambda *each: np.stack(each), *sets)
    q = jax.jit(lambda obs: network.apply(params, None, obs, (), None)[0])
    first, *others = np.asarray(q(jax.tree.unflatten(tree, obs)))
    assert first.shape == (6, 4)
    assert all(np.all(np.any(first != other, axis=-1)) for other in others)


@pytest.mark.parametrize("make", [separate_network, shared_network])
def test_a_function_of_image_and_action_depends_on_both(make):
    network = make("critic", cnn(layers=[8]), return_head(()), Pair(GRID, PLACE))
    params = random_params(network)
    obs, action = sample_space(GRID, 5), sample_space(PLACE, 5)
    pairs = np.stack([obs, 1 - obs, obs]), np.stack([action, action, -action])
    actual = jax.jit(lambda pairs: network.apply(params, None, pairs, (), None)[0])
    value, other, another = np.asarray(actual(pairs).value)[..., 0]
    assert value.shape == (5,)
    assert np.all(value != other)
    assert np.all(value != another)


@pytest.mark.parametrize(
    ("options", "space", "message"),
    [
        ({}, PLACE, "reads images, but Box(.*) contains none"),
        ({"kernels": [7]}, GRID, "kernel of 7 × 7 where 5 pixels are left"),
        ({"preset": "atari"}, BYTES, "kernel of 4 × 4 where 1 pixels are left"),
    ],
)
def test_spaces_without_a_suitable_image_are_refused(options, space, message):
    with pytest.raises(RlcliError, match=message):
        separate_network(
            "q", cnn(**{"preset": "minatar", **options}), action_values_head(2), space
        )


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(RlcliError, match="2 channels, 1 kernels and 1 strides"):
        cnn(channels=[8, 8])
