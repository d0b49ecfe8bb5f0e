"""Wrapping: functions that transform functions."""

import importlib
import pickle
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.utils import docstring, jit, unvectorize


def test_a_docstring_is_copied():
    @docstring(np.sum)
    def g(x):
        return 13 - x

    assert g.__doc__ == np.sum.__doc__
    assert g(3) == 10


def test_a_jitted_function_is_traced_once_for_each_static_value():
    traced = []

    def power(x, n):
        """The n-th power."""
        traced.append(n)
        return x**n

    compiled = jit(power, static_argnums=1)
    assert [float(compiled(3.0, n)) for n in (2, 2, 3)] == [9, 9, 27]
    assert traced == [2, 3]
    assert (compiled.__name__, compiled.__doc__) == ("power", "The n-th power.")
    assert repr(compiled).startswith("JittedFunc(<function")


def test_donated_arguments_are_deleted():
    compiled = jit(lambda x: x + 1, donate_argnums=(0,))
    given = jnp.zeros(3)
    assert compiled(given).tolist() == [1, 1, 1]
    assert given.is_deleted()


MODULE = """
from rlcli.utils import jit

def plain(x, n):
    return x * n

wrapped = jit(plain, static_argnums=(1,))

@jit
def decorated(x):
    return 13 * x
"""


def test_a_jitted_function_is_picklable_wrapped_or_decorated(tmp_path, monkeypatch):
    (tmp_path / "jitted_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("jitted_module")
    assert float(module.wrapped(2.0, 3)) == 6
    again = pickle.loads(pickle.dumps(module.wrapped))
    assert again is not module.wrapped
    assert again.static_argnums == (1,)
    assert float(again(2.0, 3)) == 6
    assert float(pickle.loads(pickle.dumps(module.decorated))(11)) == 143


@pytest.fixture(scope="module")
def linear():
    """The example of the coax docs: a batched Haiku function, and one instance."""
    init, apply = hk.transform(lambda x: hk.Linear(11)(x))
    return init(jax.random.key(0), jnp.zeros((3, 5))), apply


def test_a_transformed_function_is_unvectorized(linear):
    params, apply = linear
    batch = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    single = unvectorize(apply, in_axes=(None, None, 0), out_axes=0)
    outputs = np.asarray(apply(params, None, batch))
    for row, expected in zip(batch, outputs, strict=True):
        actual = single(params, None, row)
        assert actual.shape == (11,)
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_a_function_is_unvectorized_before_it_is_transformed(linear):
    params, _ = linear
    x = jnp.ones(5)
    init, single = hk.transform(unvectorize(lambda x: hk.Linear(11)(x)))
    assert jax.tree.map(jnp.shape, init(jax.random.key(0), x)) == jax.tree.map(
        jnp.shape, params
    )
    assert single(params, None, x).shape == (11,)


def test_it_is_the_inverse_of_vmap():
    def f(x, y):
        return {"sum": x["a"] + y}

    x, y = {"a": np.arange(3.0)}, np.ones(3)
    actual = unvectorize(jax.vmap(f, (0, None)), (0, None))(x, y)
    np.testing.assert_array_equal(actual["sum"], f(x, y)["sum"])
    columns = unvectorize(jax.vmap(f, (1, 0), 1), (1, 0), 1)(x, y[0])
    np.testing.assert_array_equal(columns["sum"], f(x, y[0])["sum"])


class Pair(NamedTuple):
    mean: object
    scale: object


def test_outputs_of_a_tuple_lose_their_axes_one_by_one():
    def f(x):
        return Pair(x, 2 * x)

    assert jax.tree.map(jnp.shape, unvectorize(f)(np.zeros(4))) == Pair((4,), (4,))
    some = unvectorize(f, out_axes=(0, None))(np.zeros(4))
    assert jax.tree.map(jnp.shape, some) == Pair((4,), (1, 4))
    none = unvectorize(lambda x: (x, x), out_axes=None)(np.zeros(4))
    assert jax.tree.map(jnp.shape, none) == ((1, 4), (1, 4))


def test_invalid_axes_are_refused():
    with pytest.raises(ValueError, match="1 in_axes"):
        unvectorize(jnp.sin, in_axes=(0, 0))(1.0)
    with pytest.raises(ValueError, match="2 out_axes"):
        unvectorize(lambda x: (x, x), out_axes=(0,))(1.0)
    with pytest.raises(TypeError, match="single output"):
        unvectorize(jnp.sin, out_axes=(0,))(1.0)


def test_keyword_arguments_are_passed_unchanged():
    actual = unvectorize(lambda x, *, training: x if training else -x)(
        2.0, training=True
    )
    assert float(actual) == 2
