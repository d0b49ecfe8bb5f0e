"""Trees: against NumPy, leaf by leaf."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import utils

TREE = {"a": np.arange(6.0).reshape(3, 2), "b": (jnp.arange(3), np.zeros((3, 1, 4)))}


def test_single_to_batch_and_batch_to_single_are_inverse():
    single = utils.batch_to_single(TREE, index=2)
    assert single["a"].tolist() == [4, 5]
    assert (int(single["b"][0]), single["b"][1].shape) == (2, (1, 4))
    batch = utils.single_to_batch(single)
    assert [leaf.shape for leaf in jax.tree.leaves(batch)] == [(1, 2), (1,), (1, 1, 4)]
    assert isinstance(batch["a"], np.ndarray)
    assert isinstance(batch["b"][0], jax.Array)
    assert utils.batch_to_single(batch)["a"].tolist() == [4, 5]


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (0, []),
        (1, [1]),
        (8, [8]),
        (13, [8, 4, 1]),
        (3681, [2048, 1024, 512, 64, 32, 1]),
    ],
)
def test_chunks_are_consecutive_and_of_descending_powers_of_two(rows, sizes):
    batch = {"x": np.arange(rows), "y": np.zeros((rows, 2))}
    chunks = utils.chunks_pow2(batch)
    assert [len(chunk["x"]) for chunk in chunks] == sizes
    assert [chunk["y"].shape for chunk in chunks] == [(size, 2) for size in sizes]
    joined = [number for chunk in chunks for number in chunk["x"].tolist()]
    assert joined == [*range(rows)]


@pytest.mark.parametrize("batch", [{}, {"a": np.zeros(2), "b": np.zeros(3)}, [1.0]])
def test_leaves_without_a_common_first_axis_have_no_chunks(batch):
    with pytest.raises(ValueError, match="a common first axis"):
        utils.chunks_pow2(batch)


def test_trees_are_stacked_leaf_by_leaf():
    stacked = utils.stack_trees(TREE, TREE, TREE)
    assert jax.tree.structure(stacked) == jax.tree.structure(TREE)
    assert stacked["a"].shape == (3, 3, 2)
    np.testing.assert_array_equal(stacked["b"][0][1], TREE["b"][0])
    assert utils.stack_trees({"x": 1.0})["x"].tolist() == [1]
    with pytest.raises(ValueError, match="at least one tree"):
        utils.stack_trees()
    with pytest.raises(ValueError):
        utils.stack_trees({"x": 1.0}, {"y": 1.0})


def test_a_tree_is_raveled_in_the_order_of_its_leaves():
    actual = utils.tree_ravel({"b": jnp.array([[3.0, 4.0]]), "a": np.float32(2)})
    assert actual.tolist() == [2, 3, 4]


def test_quartiles_equal_those_of_numpy_over_all_magnitudes():
    tree = {"x": np.array([-4.0, 1.0]), "y": np.array([[2.0], [-3.0], [0.5]])}
    actual = utils.get_magnitude_quantiles(tree, key_prefix="grads/")
    assert [*actual] == [
        f"grads/{name}" for name in ("min", "p25", "p50", "p75", "max")
    ]
    expected = np.quantile([4, 1, 2, 3, 0.5], [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose([*actual.values()], expected)
    jitted = jax.jit(utils.get_magnitude_quantiles)(tree)
    assert float(jitted["max"]) == 4
    lowest = utils.get_magnitude_quantiles(np.array([-128], np.int8))
    assert float(lowest["max"]) == 128


def test_gradient_diagnostics_contain_norm_and_quantiles():
    grads = {"w": jnp.array([[3.0, -4.0]]), "b": jnp.array([12.0])}
    actual = utils.get_grads_diagnostics(grads, key_prefix="q/")
    assert {*actual} == {f"q/{n}" for n in ("max", "norm", "min", "p25", "p50", "p75")}
    assert (float(actual["q/norm"]), float(actual["q/max"])) == (13, 12)
    assert (float(actual["q/min"]), float(actual["q/p50"])) == (3, 4)
    per_leaf = utils.get_grads_diagnostics(grads, keep_tree_structure=True)
    assert {*per_leaf} == {"w", "b"}
    assert (float(per_leaf["w"]["norm"]), float(per_leaf["b"]["norm"])) == (5, 12)
    with pytest.raises(ValueError, match="at least one number"):
        utils.get_grads_diagnostics({})


def test_the_last_value_of_a_repeated_key_wins_with_a_warning():
    with pytest.warns(UserWarning, match="the last value wins: 'b'"):
        merged = utils.merge_dicts({"a": 1, "b": 2}, {"b": 3, "c": 4})
    assert merged == {"a": 1, "b": 3, "c": 4}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert utils.merge_dicts({"a": 1}, {}, {"b": 2}) == {"a": 1, "b": 2}
    assert utils.merge_dicts() == {}


def test_shared_params_become_their_weighted_average():
    policy = {"torso": {"w": np.array([1.0, 2.0])}, "policy": {"b": np.array(5.0)}}
    value = {"torso": {"w": np.array([4.0, 8.0])}, "value": {"b": np.array(7.0)}}
    even = utils.sync_shared_params(policy, value)
    assert isinstance(even, tuple)
    for synced in even:
        np.testing.assert_allclose(synced["torso"]["w"], [2.5, 5])
    assert (even[0]["policy"]["b"], even[1]["value"]["b"]) == (5, 7)
    assert [{*synced} for synced in even] == [{*policy}, {*value}]
    heavy, _, alone = utils.sync_shared_params(
        policy, value, {"other": np.zeros(2)}, weights=[2, 1, 9]
    )
    np.testing.assert_allclose(heavy["torso"]["w"], [2, 4])
    assert alone["other"].tolist() == [0, 0]
    assert policy["torso"]["w"].tolist() == [1, 2]


def test_params_that_cannot_be_shared_are_refused():
    one, other = {"w": np.zeros(2)}, {"w": np.zeros(3)}
    with pytest.raises(ValueError, match=r"shared leaves at \['w'\]"):
        utils.sync_shared_params(one, other)
    for weights in ([1.0], [1.0, 0.0]):
        with pytest.raises(ValueError, match="2 positive weights"):
            utils.sync_shared_params(one, one, weights=weights)
