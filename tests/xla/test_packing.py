"""Packing: a pytree as a few arrays, and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.xla.packing import InPlacePacking, Packing

TREE = {
    "count": np.int32(7),
    "flags": np.array([True, False, True]),
    "keys": np.array([[3, 4]], np.uint32),
    "nested": ({"mean": np.array([[0.5, -0.0], [np.nan, np.inf]], np.float32)}, ()),
    "rate": np.float32(0.25),
    "ring": np.arange(1_000, dtype=np.float32).reshape(250, 4),
    "empty": np.zeros((0, 3), np.float32),
}


@pytest.mark.parametrize("where", ["device", "host"])
def test_unpacking_restores_the_same_bits(where):
    packing = Packing(TREE)
    pack = packing.pack if where == "device" else packing.host_packer()
    back = jax.jit(packing.unpack)(pack(TREE))
    assert jax.tree.structure(back) == jax.tree.structure(TREE)
    for actual, given in zip(jax.tree.leaves(back), jax.tree.leaves(TREE), strict=True):
        assert actual.dtype == given.dtype
        assert actual.shape == given.shape
        assert np.asarray(actual).tobytes() == given.tobytes()


def test_small_leaves_share_one_array_per_dtype_and_large_ones_are_separate():
    packed = Packing(TREE).pack(TREE)
    sizes = {dtype: each.shape for dtype, each in packed.small.items()}
    assert sizes == {"bool": (3,), "float32": (5,), "int32": (1,), "uint32": (2,)}
    assert [leaf.shape for leaf in packed.large] == [(250, 4)]


def test_the_host_packer_overwrites_the_previous_tree():
    packing = Packing(TREE)
    pack, unpack = packing.host_packer(), jax.jit(packing.unpack)
    after = jax.tree.map(lambda leaf: (leaf + 1).astype(leaf.dtype), TREE)
    for tree in (TREE, after):
        back = unpack(pack(tree))
        jax.tree.map(np.testing.assert_array_equal, back, tree)


def test_keys_are_packed_too():
    tree = {"key": jax.random.key(3), "number": jnp.float32(1)}
    packing = Packing(tree)
    back = packing.unpack(packing.pack(tree))
    assert jnp.array_equal(
        jax.random.key_data(back["key"]), jax.random.key_data(tree["key"])
    )


def test_another_tree_is_refused():
    with pytest.raises(ValueError, match="count"):
        Packing(TREE).pack({"count": 1})


def test_packing_in_place_keeps_the_memory_of_large_arrays_and_the_bits():
    """Also of arrays whose shape becomes that of another one."""
    shapes = [(1, 1, 600), (1, 600), (1, 200, 3), (1, 200, 3)]
    numbers = np.arange(600, dtype=np.float32)
    tree = {"large": [numbers.reshape(shape) for shape in shapes], "small": numbers[:1]}
    packed = {**tree, "large": [leaf[0] for leaf in tree["large"]]}
    packing = InPlacePacking(Packing(tree), Packing(packed))
    arrays = jax.tree.map(jnp.array, tree)
    before = [leaf.unsafe_buffer_pointer() for leaf in arrays["large"]]
    for _ in range(2):
        packed_tree = packing.pack(arrays)
        assert [leaf.shape for leaf in packed_tree.large] == [x[1:] for x in shapes]
        arrays = packing.unpack(packed_tree)
        assert [leaf.unsafe_buffer_pointer() for leaf in arrays["large"]] == before
        jax.tree.map(np.testing.assert_array_equal, arrays, tree)
