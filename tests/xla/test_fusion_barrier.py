"""Fusion barriers: they prevent fusion and do not change the results."""

import jax
import numpy as np
import pytest

from rlcli.xla.fusion_barrier import fusion_barrier, materialize

pytestmark = pytest.mark.xla


def sums(x, y):
    return {"sum": x + y, "twice": 2 * x}


X = np.arange(12, dtype=np.int32).reshape(3, 4)
Y = np.float32([1.0, -2.0, 0.5, 3.0])


def equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def compile_text(function, *arrays):
    return jax.jit(function).lower(*arrays).compile().as_text() or ""


def test_a_barrier_does_not_change_the_results():
    for function in (sums, lambda x, y: sums(y, x)):
        expected = function(X[0], Y)  # in NumPy
        equal(fusion_barrier(function)(X[0], Y), expected)
        equal(jax.jit(fusion_barrier(function))(X[0], Y), expected)


def test_a_batch_equals_its_members():
    every = jax.vmap(fusion_barrier(sums), (0, None))
    equal(every(X, Y), {"sum": X + Y, "twice": 2 * X})
    nested = jax.vmap(jax.vmap(fusion_barrier(sums)), (0, None))
    equal(nested(X, Y), {"sum": X + Y, "twice": 2 * X})


def test_xla_does_not_fuse_across_a_barrier_and_a_batch_has_one():
    def read(x, y):
        actual = fusion_barrier(sums)(x, y)
        return actual["sum"][:, None] * actual["twice"]

    for function, x in ((read, X[0]), (jax.vmap(read, (0, None)), X)):
        assert compile_text(function, x, Y).count(" conditional(") == 1


def test_small_outputs_have_no_barrier():
    for least, lines in ((8, 1), (9, 0)):
        text = compile_text(fusion_barrier(sums, least), X[0], Y)
        assert text.count(" conditional(") == lines
    # The size counts over the whole batch, three times as much.
    text = compile_text(jax.vmap(fusion_barrier(sums, 9), (0, None)), X, Y)
    assert text.count(" conditional(") == 1


def test_materialize_supports_trees_of_all_dtypes():
    tree = {"flag": np.array([True, False]), "whole": X, "part": Y, "bits": X > 5}
    equal(materialize(tree), tree)
    equal(jax.vmap(materialize)({"x": X, "y": X > 5}), {"x": X, "y": X > 5})
    assert " conditional(" in compile_text(
        lambda tree: materialize(tree)["part"] * 2, tree
    )
