"""Arrays: against NumPy and tables worked out by hand."""

import gymnasium
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from rlcli import utils


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_without_ties_the_index_equals_that_of_numpy(name, axis):
    array = np.random.default_rng(0).normal(size=(3, 4, 5))
    find = jax.jit(getattr(utils, name), static_argnames="axis")
    actual = find(jax.random.key(0), array, axis=axis)
    np.testing.assert_array_equal(actual, getattr(np, name)(array, axis=axis))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_ties_are_broken_uniformly_along_any_axis(name):
    ties = np.array([[1, 0], [1, 1], [0, 1], [1, 0]])  # best: 0 1 3, and 1 2
    if name == "argmin":
        ties = 1 - ties
    pick = jax.jit(jax.vmap(lambda key: getattr(utils, name)(key, ties, axis=0)))
    picked = np.asarray(pick(jax.random.split(jax.random.key(1), 3_000)))
    shares = [np.bincount(picked[:, column], minlength=4) / 3_000 for column in (0, 1)]
    np.testing.assert_allclose(shares[0], [1 / 3, 1 / 3, 0, 1 / 3], atol=0.03)
    np.testing.assert_allclose(shares[1], [0, 1 / 2, 1 / 2, 0], atol=0.03)


def test_argmin_supports_dtypes_that_cannot_be_negated():
    key = jax.random.PRNGKey(0)  # keys of the old kind as well
    argmin = jax.jit(utils.argmin)
    assert argmin(key, np.array([3, 0, 7], np.uint8)) == 1
    assert argmin(key, np.array([5, -(2**31), 7], np.int32)) == 1
    assert jax.jit(utils.argmax)(key, np.array([1.0, np.nan, 2.0])) == 1
    assert utils.argmax(key, [True, False]) == 0


GOOD = {
    "ndim": 2,
    "ndim_min": 2,
    "ndim_max": 2,
    "dtype": "float32",
    "shape": (3, 4),
    "axis_size": 4,
    "axis": -1,
}


@pytest.mark.parametrize("library", [np, jnp])
def test_an_array_with_all_properties_passes(library):
    array = library.zeros((3, 4), "float32")
    assert utils.check_array(array, **GOOD) is None
    several = {"ndim": (1, 2), "dtype": [jnp.bfloat16, np.float32], "axis_size": {4, 5}}
    utils.check_array(array, **GOOD | several)
    utils.check_array(array, except_np=True)


@pytest.mark.parametrize(
    "bad",
    [
        {"ndim": 1},
        {"ndim": {1, 3}},
        {"ndim_min": 3},
        {"ndim_max": 1},
        {"dtype": "int32"},
        {"dtype": ("int32", "float64")},
        {"shape": (4, 3)},
        {"axis_size": 3},
        {"axis_size": (1, 2)},
        {"axis": 0},
        {"axis": 2},
    ],
    ids=str,
)
def test_a_property_that_does_not_hold_raises_a_type_error(bad):
    with pytest.raises(TypeError, match="got an array of shape"):
        utils.check_array(np.zeros((3, 4), np.float32), **GOOD | bad)


def test_a_list_is_not_an_array():
    with pytest.raises(TypeError, match="expected an array, got <class 'list'>"):
        utils.check_array([1.0])


def test_the_clipped_logit_is_finite_on_the_unit_interval():
    x = np.array([0.1, 0.5, 0.9], np.float32)
    np.testing.assert_allclose(utils.clipped_logit(x), np.log(x / (1 - x)), atol=1e-6)
    least = np.log(1e-15)
    np.testing.assert_allclose(utils.clipped_logit([0, 1]), [least, -least], rtol=1e-6)
    actual = utils.clipped_logit(np.array([0.0, 0.25]), epsilon=0.5)
    np.testing.assert_allclose(actual, [np.log(0.5), np.log(0.5 / 0.75)], rtol=1e-6)


def test_the_matrix_equals_that_of_the_coax_docs():
    assert utils.diff_transform_matrix(4).tolist() == [
        [-1, 0, 0, 0],
        [3, 1, 0, 0],
        [-3, -2, -1, 0],
        [1, 1, 1, 1],
    ]
    assert utils.diff_transform_matrix(1).tolist() == [[1]]
    assert utils.diff_transform_matrix(2, dtype="int8").dtype == np.int8
    assert utils.diff_transform_matrix(3, "bfloat16").dtype == ml_dtypes.bfloat16
    with pytest.raises(ValueError, match="at least one frame"):
        utils.diff_transform_matrix(0)


@pytest.mark.parametrize("frames", [1, 2, 5])
@pytest.mark.parametrize("library", [np, jnp])
def test_frames_become_differences_of_growing_order(frames, library):
    pictures = np.random.default_rng(0).integers(0, 255, (2, 3, frames), np.uint8)
    actual = utils.diff_transform(library.asarray(pictures))
    assert type(actual) is type(library.zeros(()) if library is jnp else np.zeros(1))
    assert actual.dtype == np.float32
    for order in range(frames):
        expected = np.diff(pictures.astype(float), order)[..., -1]
        np.testing.assert_allclose(actual[..., frames - 1 - order], expected)


def test_the_double_relu_equals_that_of_the_coax_docs():
    x = jnp.array([[-11, -8], [17, 5], [-13, 7], [19, -3]])
    actual = utils.double_relu(x)
    assert actual.dtype == np.int32
    assert actual.tolist() == [
        [-11, -8, 0, 0],
        [0, 0, 17, 5],
        [-13, 0, 0, 7],
        [0, -3, 19, 0],
    ]


def test_indices_are_those_of_an_axis_of_numpy_and_jax_arrays():
    array = np.zeros((3, 5))
    assert utils.idx(array).tolist() == [0, 1, 2]
    assert utils.idx(array, axis=-1).tolist() == [0, 1, 2, 3, 4]
    assert isinstance(utils.idx(array), np.ndarray)
    assert isinstance(utils.idx(jnp.asarray(array)), jax.Array)
    assert array[utils.idx(array), [0, 1, 2]].shape == (3,)


@pytest.mark.parametrize(
    "number",
    [
        *[1, 2.5, True, 1j, np.float32(1), np.bool_(True), ml_dtypes.bfloat16(1)],
        *[np.zeros(()), np.zeros((1, 1)), jnp.zeros(1), jnp.float32(3)],
    ],
)
def test_numbers_and_single_entries_are_scalars(number):
    assert utils.isscalar(number) is True


@pytest.mark.parametrize(
    "other", ["1", None, [1], np.zeros(2), jnp.zeros(0), np.str_("a"), gymnasium]
)
def test_other_objects_are_not_scalars(other):
    assert utils.isscalar(other) is False
