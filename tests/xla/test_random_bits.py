"""Random bits, against those of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.xla.random_bits import unroll_key

KEY = jax.random.key(7)


def assert_same(ours, theirs):
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.xla
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((), "uint32"), ((1,), "uint16"), ((3,), "uint8"), ((2, 5), "uint32")],
)
def test_bits_equal_those_of_jax(shape, dtype):
    @jax.jit
    @jax.vmap
    def draw_both(seed):
        key = jax.random.key(seed)
        ours = jax.random.bits(unroll_key(key), shape, dtype)
        return ours, jax.random.bits(key, shape, dtype)

    assert_same(*draw_both(np.uint32([0, 1, 2**31, 2**32 - 1])))


@pytest.mark.xla
def test_derived_keys_equal_those_of_jax():
    @jax.jit
    def derive(key):
        derived = (
            jax.random.split(key, 3),
            jax.random.split(key, (2, 3))[1],
            jax.random.fold_in(key, 12)[None],
            jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(4)),
        )
        draw = jax.vmap(lambda key: jax.random.bits(key, (3,)))
        return [(jax.random.key_data(keys), draw(keys)) for keys in derived]

    jax.tree.map(assert_same, derive(unroll_key(KEY)), derive(KEY))


@pytest.mark.slow
def test_samples_equal_those_of_jax_for_any_batch_size():
    def draw(key):
        return (
            jax.random.uniform(key, (4,), jnp.float32, -0.05, 0.05),
            jax.random.normal(key, (2, 2)),
            jax.random.randint(key, (4,), -3, 9),
        )

    @jax.jit
    def drawn(keys):
        alone, few, many = keys[0], keys[:5], keys
        return draw(alone), jax.vmap(draw)(few), jax.vmap(draw)(many)

    keys = jax.random.split(KEY, 150)
    jax.tree.map(assert_same, drawn(jax.vmap(unroll_key)(keys)), drawn(keys))


def test_the_key_of_a_seed_equals_that_of_jax():
    impl = jax.random.key_impl(unroll_key(KEY))
    for seed in (0, -1, 2**31 - 1):
        ours = jax.random.key_data(jax.random.key(seed, impl=impl))
        assert_same(ours, jax.random.key_data(jax.random.key(seed)))


def test_other_keys_and_unrolled_keys_are_unchanged():
    other = jax.random.key(0, impl="rbg")
    assert unroll_key(other) is other
    once = unroll_key(KEY)
    assert unroll_key(once) is once


def test_raw_key_data_is_supported():
    raw = jax.random.PRNGKey(3)
    assert_same(jax.random.bits(unroll_key(raw), (2,)), jax.random.bits(raw, (2,)))


def test_more_numbers_than_the_counter_supports_are_refused():
    with pytest.raises(ValueError, match="at most 2³² numbers"):
        jax.jit(lambda: jax.random.bits(unroll_key(KEY), (2**20, 2**13))).lower()
