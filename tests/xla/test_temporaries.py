"""Temporaries: counted from a jaxpr, and compared with the memory of XLA."""

import jax
import jax.numpy as jnp
import pytest

from rlcli.xla.temporaries import temporary_bytes, tree_bytes

N = 64
SQUARE = jax.ShapeDtypeStruct((N, N), jnp.float32)
SIZE = N * N * 4


def counted(function, *arguments):
    return temporary_bytes(jax.make_jaxpr(function)(*arguments))


def test_elementwise_operations_are_fused_with_their_consumers():
    assert counted(lambda x: jnp.sum(jnp.sin(x) * 2 + x), SQUARE) == 0


@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (lambda x: x @ x, 1),
        (lambda x: x @ x @ x, 2),  # the first product lives until the second exists
        (lambda x: x @ x @ x @ x, 2),  # and no longer
        (lambda x: (x @ x) + (x @ x.T), 3),  # both products and the transpose
        (jax.jit(lambda x: x @ x @ x), 2),
    ],
)
def test_matrix_products_count_as_long_as_they_are_read(function, arrays):
    assert counted(lambda x: jnp.sum(function(x)), SQUARE) == arrays * SIZE


def test_operands_of_fused_operations_are_counted():
    def function(x):
        activations = jax.nn.relu(x @ x)  # XLA stores these, and not the product
        return jnp.sum(x @ x) + jnp.sum(activations)

    assert counted(function, SQUARE) == 2 * SIZE


def test_in_place_updates_are_not_copied():
    def written(ring, row):
        def step(i, ring):
            return jax.lax.dynamic_update_slice_in_dim(ring, row + i, i, 0)

        return jax.lax.fori_loop(0, 10, step, ring)

    row = jax.ShapeDtypeStruct((1, N), jnp.float32)
    assert counted(written, SQUARE, row) == 0


@pytest.mark.xla
def test_the_estimate_is_at_most_the_memory_of_xla():
    def loss(params, x):
        for each in params:
            x = jax.nn.relu(x @ each)
        return jnp.mean(x**2)

    params = [SQUARE] * 4
    rows = jax.ShapeDtypeStruct((100 * N, N), jnp.float32)
    traced = jax.jit(jax.grad(loss)).trace(params, rows)
    memory = traced.lower().compile().memory_analysis()
    bound = temporary_bytes(traced.jaxpr)
    written = memory.temp_size_in_bytes + memory.output_size_in_bytes
    assert written / 4 < bound <= written


def test_tree_bytes_is_the_sum_over_leaves():
    assert tree_bytes({"a": SQUARE, "b": (jnp.zeros(3, bool),)}) == SIZE + 3
