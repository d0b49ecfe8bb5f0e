"""Trees of arrays by tree path, and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

from rlcli.errors import RlcliError
from rlcli.runs import checkpoint


class Learner(NamedTuple):
    params: Any
    optimizer: Any
    nothing: Any = ()


def tree() -> dict[str, Any]:
    params = {
        "mlp/~/linear_0": {"w": jnp.ones((2, 3)), "b": jnp.zeros(3, jnp.bfloat16)},
        "a\\b": np.uint32(7),
    }
    return {
        "learner": Learner(params, optax.adam(1e-3).init(params)),
        "keys": jax.random.split(jax.random.key(3), 4),
        "host": [(np.arange(2), np.int64(2**40))],
    }


def test_leaves_lie_under_their_tree_paths():
    leaves = checkpoint.flatten_tree(tree())
    assert set(leaves) == {
        "host/0/0",
        "host/0/1",
        "keys",
        r"learner/params/a\\b",
        r"learner/params/mlp\/~\/linear_0/b",
        r"learner/params/mlp\/~\/linear_0/w",
        "learner/optimizer/0/count",
        r"learner/optimizer/0/mu/a\\b",
        r"learner/optimizer/0/mu/mlp\/~\/linear_0/b",
        r"learner/optimizer/0/mu/mlp\/~\/linear_0/w",
        r"learner/optimizer/0/nu/a\\b",
        r"learner/optimizer/0/nu/mlp\/~\/linear_0/b",
        r"learner/optimizer/0/nu/mlp\/~\/linear_0/w",
    }
    assert all(type(leaf) is np.ndarray for leaf in leaves.values())
    assert leaves["host/0/1"] == 2**40
    assert leaves["keys"].shape == (4, 2)
    assert leaves[r"learner/params/mlp\/~\/linear_0/b"].dtype == ml_dtypes.bfloat16


def test_keys_with_slashes_do_not_share_a_path_with_nested_ones():
    leaves = checkpoint.flatten_tree(
        {
            "a/b": np.array(1),
            "a": {"b": np.array(2), "": {"b": np.array(3)}},
            "a\\": {"b": np.array(4)},
            "a\\/b": np.array(5),
        }
    )
    assert sorted(leaf.item() for leaf in leaves.values()) == [1, 2, 3, 4, 5]


def test_a_leaf_that_is_no_array_is_refused():
    with pytest.raises(
        TypeError, match=r"`a/0`: expected an array, got <class 'float'>"
    ):
        checkpoint.flatten_tree({"a": [1.0]})


def shapes_of(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def test_a_tree_comes_back_from_its_file(tmp_path):
    checkpoint.write(
        tmp_path / "x.pkl.lz4", {"leaves": checkpoint.flatten_tree(tree())}
    )
    saved = checkpoint.read(tmp_path / "x.pkl.lz4")["leaves"]
    again = checkpoint.restore_tree(shapes_of(tree()), saved, source="x")
    assert jax.tree.structure(again) == jax.tree.structure(tree())
    for leaf, expected in zip(
        jax.tree.leaves(again), jax.tree.leaves(tree()), strict=True
    ):
        assert leaf.dtype == expected.dtype
        assert jnp.array_equal(leaf, expected)
    np.testing.assert_array_equal(
        jax.random.uniform(again["keys"][1]), jax.random.uniform(tree()["keys"][1])
    )


def test_keys_come_back_with_the_generator_that_the_program_uses():
    keys = jax.random.key(5, impl="rbg")
    again = checkpoint.restore_tree(
        jax.eval_shape(lambda: keys), checkpoint.flatten_tree(keys), source="x"
    )
    assert again.dtype == keys.dtype
    assert checkpoint.flatten_tree(keys).keys() == {""}


def wrong(**changes: Any) -> str:
    saved: dict[str, Any] = {"w": np.zeros((4, 64), np.float32), "b": np.zeros(2, bool)}
    shapes = {"w": jax.ShapeDtypeStruct((4, 64), np.float32)}
    shapes["b"] = jax.ShapeDtypeStruct((2,), bool)
    for path, leaf in changes.items():
        saved[path] = leaf
    saved = {path: leaf for path, leaf in saved.items() if leaf is not None}
    with pytest.raises(RlcliError) as error:
        checkpoint.restore_tree(shapes=shapes, arrays=saved, source="x.pkl.lz4")
    return error.value.message.removeprefix("`x.pkl.lz4` does not match its recipe: ")


def test_a_leaf_that_does_not_fit_is_named_with_both_shapes():
    float32 = np.float32
    assert wrong(w=np.zeros((4, 128), float32)) == (
        "expected float32[4, 64] at `w`, got float32[4, 128]"
    )
    assert wrong(w=np.zeros((4, 64), np.int32)) == (
        "expected float32[4, 64] at `w`, got int32[4, 64]"
    )
    assert wrong(b=None) == "expected bool[2] at `b`, got nothing"
    assert wrong(more=np.zeros((), float32)) == (
        "expected nothing at `more`, got float32[]"
    )


def test_a_saved_value_that_is_no_array_is_refused_like_a_wrong_shape():
    assert wrong(w=[1.0]) == "expected float32[4, 64] at `w`, got a list"
