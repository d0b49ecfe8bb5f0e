"""Pickling: objects and references are restored; forged data are refused."""

from __future__ import annotations

import collections
import io
import math
import os
import pickle
import pickletools
import struct
import tracemalloc

import hypothesis.extra.numpy as numpy_strategies
import jax
import jax.numpy as jnp
import lz4.frame
import ml_dtypes
import numpy as np
import pytest
from folders import checkpoint_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcli.errors import RlcliError
from rlcli.runs import pickles
from rlcli.utils import dump, dumps, load, loads, pickling
from rlcli.utils.kinds import is_policy
from rlcli.utils.pickling import MAX_OPCODES
from rlcli.xla import machine

MEBIBYTE = 2**20


def assert_same(actual, expected):
    """Asserts equal bits and types."""
    assert type(actual) is type(expected)
    if isinstance(expected, np.ndarray | np.generic):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert actual.tobytes() == expected.tobytes()
    elif isinstance(expected, dict):
        assert_same([*actual.items()], [*expected.items()])
    elif isinstance(expected, set):
        assert {*map(repr, actual)} == {*map(repr, expected)}
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for each, other in zip(actual, expected, strict=True):
            assert_same(each, other)
    else:
        assert repr(actual) == repr(expected)  # tells −0 from 0, and NaN is NaN


numbers = numpy_strategies.arrays(
    st.sampled_from(["bool", "int8", "uint64", "float16", "float32", "complex128"]),
    numpy_strategies.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=()))  # lone surrogates as well
    | st.binary()
)
keys = st.recursive(
    atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5
)
objects = st.recursive(
    keys | numbers,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.sets(keys)
        | st.dictionaries(keys, inner)
    ),
    max_leaves=20,
)


@settings(deadline=None, database=None, derandomize=True, max_examples=60)
@given(objects)
@pytest.mark.slow
def test_every_supported_object_is_restored_and_gives_the_same_bytes(obj):
    stored = dumps(obj)
    again = loads(stored)
    assert_same(again, obj)
    assert dumps(again) == stored


def test_the_format_is_an_lz4_frame_of_a_pickle_without_globals():
    obj = {"a": [1, -(2**70), None, True, 0.5], ("b", 2): {3}, "c": b"x"}
    stored = dumps(obj)
    payload = lz4.frame.decompress(stored)
    assert pickle.loads(payload) == [
        [1],
        ["dict", [2], [3], [5], [7], [8], [9]],
        "a",
        ["list", 1, [4], None, True, 0.5],
        ["int", "-0x400000000000000000"],
        ["tuple", [6], 2],
        "b",
        ["set", 3],
        "c",
        ["bytes", {"data": b"x", "dtype": "uint8", "shape": [1]}],
    ]
    everything = [obj, np.zeros(2), np.float32(1), 1j, [(1, 2)] * 2]
    opcodes = pickletools.genops(lz4.frame.decompress(dumps(everything)))
    code = {"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "REDUCE", "BUILD"}
    assert not {opcode.name for opcode, _, _ in opcodes} & code


def test_references_within_an_object_are_preserved():
    a = [13]
    b = {"a": a}
    a_new, b_new = loads(dumps((a, b)))
    b_new["a"].append(7)
    assert b_new == {"a": [13, 7]}
    assert a_new == [13, 7]
    a_new, b_new = loads(dumps(a)), loads(dumps(b))
    b_new["a"].append(7)
    assert a_new == [13]


@pytest.mark.parametrize(
    "shared",
    [
        [1],
        {"x": 1},
        {1},
        (1, 2),
        ([],),
        np.zeros(2),
        np.float32(1),
        1j,
        "word",
        b"data",
    ],
    ids=lambda shared: type(shared).__name__,
)
def test_shared_objects_stay_shared(shared):
    first, second, inner = loads(dumps([shared, shared, {"again": shared}]))
    assert first is second is inner["again"]


def test_equal_but_separate_objects_stay_separate():
    first, second = loads(dumps([[1], [1]]))
    assert first == second
    assert first is not second
    arrays = loads(dumps([np.zeros(2), np.zeros(2)]))
    assert arrays[0] is not arrays[1]


def test_an_object_may_contain_itself():
    items, table, pair = [], {}, ([], "end")
    items.append(items)
    table["self"] = [table]
    pair[0].append(pair)
    again = loads(dumps(items))
    assert again[0] is again
    again = loads(dumps(table))
    assert again["self"][0] is again
    again = loads(dumps(pair))
    assert again[0][0] is again
    assert again[1] == "end"
    both = loads(dumps([pair, items, pair]))
    assert both[0] is both[2] is both[0][0][0]


def test_repeated_references_do_not_increase_the_size():
    web = ["bottom"]
    for _ in range(60):
        web = [web, web]
    stored = dumps(web)
    assert len(stored) < 2_000
    again = loads(stored)
    depth = 0
    while again != ["bottom"] and len(again) == 2:
        assert again[0] is again[1]
        again, depth = again[0], depth + 1
    assert depth == 60


def test_arrays_are_loaded_as_writable_numpy_arrays():
    stored = {"jax": jnp.arange(3), "bf16": jnp.ones(2, "bfloat16"), "np": np.zeros(2)}
    again = loads(dumps(stored))
    assert {type(array) for array in again.values()} == {np.ndarray}
    assert again["jax"].tolist() == [0, 1, 2]
    assert again["bf16"].dtype == ml_dtypes.bfloat16
    again["np"][0] = 7
    assert again["np"].tolist() == [7, 0]
    shared = jnp.zeros(3)
    first, second = loads(dumps((shared, shared)))
    assert first is second


def test_every_numeric_dtype_is_preserved_with_any_byte_and_axis_order():
    for dtype in pickles.DTYPES.values():
        assert_same(loads(dumps(np.ones((2, 1), dtype))), np.ones((2, 1), dtype))
    array = np.arange(12, dtype="<i4").reshape(3, 4)
    for other in (array.astype(">i4"), np.asfortranarray(array)):
        assert dumps(other) == dumps(array)


def test_integers_of_any_size_are_preserved():
    sizes = [0, 1, -1, 127, 128, -128, -129, 255, 2**63, -(2**64), 2**2039, -(2**2040)]
    again = loads(dumps([*sizes, 2**2047, 3**9_000]))
    assert again == [*sizes, 2**2047, 3**9_000]


def test_the_bytes_do_not_depend_on_the_order_of_a_set():
    one, other = {0, 8}, {8, 0}
    assert [*one] != [*other]  # the order of strings differs between Python processes
    assert dumps([one, {"x": one}]) == dumps([other, {"x": other}])


Point = collections.namedtuple("Point", "x")
BAD = {
    "frozenset": frozenset({1}),
    "bytearray": bytearray(b"x"),
    "NamedTuple": Point(1),
    "OrderedDict": collections.OrderedDict(),
    "function": len,
    "class": int,
    "object": object(),
    "array of objects": np.array([object()]),
    "array of text": np.array(["text"]),
    "array of dates": np.array([1], "datetime64[s]"),
    "structured array": np.zeros(1, [("a", "<f4")]),
    "text of NumPy": np.str_("a"),
    "masked array": np.ma.masked_array([1.0], [True]),
    "key": jax.random.key(0),
}


@pytest.mark.parametrize("name", BAD)
def test_unsupported_types_raise_a_type_error_that_names_the_path(name):
    with pytest.raises(TypeError, match=r"^`/deep/1/2`: expected"):
        dumps({"deep": [0, (0, 0, BAD[name])]})


def test_the_path_covers_keys_sets_and_the_root():
    with pytest.raises(TypeError, match=r"`/a/frozenset\(\)`"):
        dumps({"a": {frozenset(): 1}})
    with pytest.raises(TypeError, match=r"`/a/\(1, 2\)/{}`"):
        dumps({"a": {(1, 2): {frozenset()}}})
    with pytest.raises(TypeError, match=r"^`/`: expected .* got <class 'function'>$"):
        dumps(is_policy)


def nested_list(depth):
    data = []
    for _ in range(depth - 1):
        data = [data]
    return data


def test_the_maximum_depth_is_the_same_for_writing_and_reading():
    deepest = nested_list(pickles.MAX_DEPTH)
    assert loads(dumps(deepest)) == deepest
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        dumps(nested_list(pickles.MAX_DEPTH + 1))
    inner = deepest
    while inner:
        inner = inner[0]
    inner.append(np.zeros(1))
    assert loads(dumps(deepest)) == deepest


def test_too_many_values_are_refused_when_they_are_written(monkeypatch):
    monkeypatch.setattr("rlcli.utils.pickling.MAX_OPCODES", 1_000)
    most = [None] * (1_000 - 11)  # three lists, of 3 opcodes each, with "list" and 1
    assert loads(dumps(most)) == most
    with pytest.raises(ValueError, match="belong in arrays"):
        dumps([*most, None])
    assert MAX_OPCODES > 1_000_000


def test_files_are_written_atomically_and_missing_folders_are_created(tmp_path):
    path = tmp_path / "new" / "ab.pkl.lz4"
    a = [13]
    dump((a, {"a": a}), str(path))
    a_new, b_new = load(path)
    assert a_new is b_new["a"]
    assert path.read_bytes() == dumps((a, {"a": a}))
    with pytest.raises(TypeError):
        dump([1, len], path)
    assert load(path) == ([13], {"a": [13]})
    assert [file.name for file in path.parent.iterdir()] == ["ab.pkl.lz4"]


def test_paths_that_are_not_files_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("nothing", "pipe", "."):
        with pytest.raises(RlcliError, match="there is no file"):
            load(tmp_path / name)


def test_a_frame_that_fills_the_memory_is_not_decompressed(monkeypatch):
    bomb = dumps(np.zeros(10**7, np.uint8))
    assert len(bomb) < 10**5
    limit = machine.Available(2 * 10**7, "physical memory")
    monkeypatch.setattr(pickling, "available_memory", lambda: limit)
    with pytest.raises(RlcliError, match=r"needs more memory than the 19\.1 MiB"):
        loads(bomb)


def load_error(stored, why=""):
    with pytest.raises(RlcliError, match="is not opened") as error:
        loads(stored)
    assert why in str(error.value)
    assert "\n" not in error.value.message


def test_data_that_are_not_a_frame_are_refused():
    stored = dumps([1, 2, 3])
    load_error(b"", "no lz4 frame")
    load_error(pickle.dumps([1]), "no lz4 frame")
    load_error(checkpoint_bytes({"a": 1}), "no lz4 frame")
    load_error(b"\x50\x2a\x4d\x18" + stored, "no lz4 frame")  # a skippable one
    load_error(stored + b"x", "does not end with the data")
    load_error(stored + stored, "does not end with the data")
    load_error(stored[:-1], "does not end with the data")
    load_error(stored[:6] + b"\xff" * 9 + stored[15:])
    large = dumps(np.random.default_rng(0).bytes(2 * pickles.PIECE_SIZE))
    assert len(loads(large)) == 2 * pickles.PIECE_SIZE
    load_error(large + bytes(2 * pickles.PIECE_SIZE), "something behind")
    with pytest.raises(TypeError):
        loads("text")


def test_a_small_frame_with_a_large_declared_size_allocates_little():
    stored = bytearray(
        lz4.frame.compress(b"".join(pickles.encode([None])), store_size=True)
    )
    assert loads(stored) is None
    stored[6:14] = struct.pack("<Q", 2**60)  # the size that its header claims
    tracemalloc.start()
    with pytest.raises(RlcliError):
        loads(bytes(stored))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEBIBYTE


def test_loading_does_not_run_code_of_a_pickle(tmp_path):
    marker = tmp_path / "marker"
    code = f"open({str(marker)!r}, 'w').close()"
    attack = f'cbuiltins\nexec\n(S"{code}"\ntR.'.encode()
    load_error(lz4.frame.compress(b"\x80\x04" + attack), "the opcode `GLOBAL`")
    assert not marker.exists()
    pickle.loads(b"\x80\x04" + attack)  # the attack is real
    assert marker.exists()


def test_non_finite_numbers_are_preserved_in_containers():
    again = loads(dumps({math.nan, math.inf, complex(math.nan, 0)}))
    assert sorted(map(repr, again)) == ["(nan+0j)", "inf", "nan"]
    assert io.BytesIO(dumps(again)).read(4) == b"\x04\x22\x4d\x18"
