"""The pickle inside of checkpoints, without header, frame and checksum."""

from __future__ import annotations

import io
import math
import pickle
import random
import struct
import tracemalloc
from typing import Any

import hypothesis.extra.numpy as numpy_strategies
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import quick_first

from rlcli.runs import pickles
from rlcli.runs.pickles import MalformedError, decode, encode

MEBIBYTE = 2**20


def dump_pickle(data: Any) -> bytes:
    return b"".join(encode(data))


def load_pickle(payload: bytes) -> Any:
    return decode(io.BytesIO(payload))


def assert_same(actual: Any, expected: Any) -> None:
    """The same to the bit, and of the same types: 1 is not True, and NaN is NaN."""
    if isinstance(expected, np.ndarray | np.generic):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        assert actual.tobytes() == expected.tobytes()
        return
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for each, other in zip(actual, expected, strict=True):
            assert_same(each, other)
    elif isinstance(expected, float):
        assert struct.pack(">d", actual) == struct.pack(">d", expected)
    else:
        assert actual == expected


def _array(name: str) -> st.SearchStrategy[np.ndarray]:
    """Arrays of a dtype, of any bits: 0 to 3 axes, empty ones too."""

    def build(shape: tuple[int, ...], seed: int) -> np.ndarray:
        dtype = pickles.DTYPES[name]
        size = math.prod(shape) * dtype.itemsize
        bits = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
        if name == "bool":
            bits = bits % 2
        return bits.view(dtype).reshape(shape)

    shapes = numpy_strategies.array_shapes(
        min_dims=0, max_dims=3, min_side=0, max_side=4
    )
    return st.builds(build, shapes, st.integers(0, 2**32 - 1))


arrays = st.sampled_from(sorted(pickles.DTYPES)).flatmap(_array)
plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=()))  # lone surrogates as well
    | arrays,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize("count", quick_first([30, 300]))
def test_plain_data_come_back_to_the_bit_and_give_the_same_bytes_again(count):
    @settings(max_examples=count, deadline=None, database=None, derandomize=True)
    @given(plain_data)
    def check(data):
        payload = dump_pickle(data)
        again = load_pickle(payload)
        assert_same(again, data)
        assert dump_pickle(again) == payload

    check()


def test_any_pickle_reader_can_read_what_is_written():
    data = {"b": [1, -1, 2**64 - 1, None, True, 0.5], "a": np.array([[1], [2]], "<i2")}
    assert pickle.loads(dump_pickle(data)) == {
        "a": {"data": b"\1\0\2\0", "dtype": "int16", "shape": [2, 1]},
        "b": [1, -1, 2**64 - 1, None, True, 0.5],
    }


def test_equal_data_are_equal_bytes_whatever_is_shared_or_came_first():
    array = np.arange(3)
    word = "".join(["sha", "red"])
    shared = {"x": [word, word, array, array], "y": 1}
    apart = {"y": 1, "x": ["shared", "shar" + "ed", np.arange(3), array.copy()]}
    assert dump_pickle(shared) == dump_pickle(apart)


def test_an_array_is_stored_the_same_whatever_its_strides_and_byte_order():
    array = np.arange(12, dtype="<i4").reshape(3, 4)
    expected = dump_pickle(array)
    assert dump_pickle(array.astype(">i4")) == expected
    assert dump_pickle(np.asfortranarray(array)) == expected
    assert dump_pickle(np.repeat(array, 2, axis=1)[:, ::2]) == expected


def test_every_dtype_of_numbers_is_kept():
    for name, dtype in pickles.DTYPES.items():
        again = load_pickle(dump_pickle(np.ones((2, 1), dtype)))
        assert again.dtype == dtype
        assert again.dtype.name == name
        assert again.astype(np.complex64).tolist() == [[1.0], [1.0]]


def test_scalars_of_numpy_are_arrays_without_axes():
    for scalar in [np.float32(0.1), np.float64(0.1), np.bool_(True), np.uint32(7)]:
        assert_same(load_pickle(dump_pickle(scalar)), np.asarray(scalar))
    assert load_pickle(dump_pickle(ml_dtypes.bfloat16(2))).dtype == ml_dtypes.bfloat16


def test_a_truth_value_is_stored_as_0_or_1():
    odd = np.array([0, 1, 2, 255], np.uint8).view(bool)
    assert dump_pickle(odd) == dump_pickle(np.array([False, True, True, True]))
    assert dump_pickle(odd[2:3]) == dump_pickle(np.array([True]))


def test_large_arrays_come_in_pieces():
    array = np.arange(MEBIBYTE, dtype=np.uint32)
    pieces = list(encode([array]))
    assert max(map(len, pieces)) < 2 * pickles.PIECE_SIZE
    assert_same(load_pickle(b"".join(pieces)), [array])


def test_pieces_are_neither_too_large_for_the_memory_nor_too_small_to_be_fast():
    sizes = [*map(len, encode(np.zeros(4 * MEBIBYTE, np.uint8)))]
    assert max(sizes) <= MEBIBYTE
    assert len(sizes) <= 33


@pytest.mark.parametrize(
    "shape", [[-1], [-1, -1], [True], [1.0], "1", 1, None, [1] * 65]
)
def test_a_shape_that_no_array_has_is_refused_before_numpy_sees_it(shape):
    with pytest.raises(MalformedError, match="whose shape is not a list of sizes"):
        pickles.decode_array("uint8", shape, b"x")


def test_an_array_may_have_as_many_axes_as_in_numpy():
    assert pickles.decode_array("uint8", [1] * 64, b"x").ndim == 64


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1, 2},
        b"bytes",
        1j,
        object(),
        np.array(["text"]),
        np.array([object()]),
        np.array([1], "datetime64[s]"),
        np.ma.masked_array([1.0], [True]),
        {1: 2},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_plain_is_refused_with_its_tree_path(value):
    with pytest.raises(TypeError, match="`/deep/1`"):
        dump_pickle({"deep": [0, value]})


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_an_int_of_more_than_64_bits_is_refused(value):
    with pytest.raises(ValueError, match=r"`/n`.*64 bits"):
        dump_pickle({"n": value})


def nested_list(depth: int) -> list:
    data: list = []
    for _ in range(depth - 1):
        data = [data]
    return data


def nested_dict(depth: int) -> dict:
    data: dict = {}
    for _ in range(depth - 1):
        data = {"a": data}
    return data


@pytest.mark.parametrize("nested", [nested_list, nested_dict])
def test_the_maximum_depth_is_the_same_for_writing_and_reading(nested):
    data = nested(pickles.MAX_DEPTH)
    assert load_pickle(dump_pickle(data)) == data
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        dump_pickle(nested(pickles.MAX_DEPTH + 1))


@pytest.mark.parametrize(
    "limit", [100, pytest.param(pickles.MAX_OPCODES, marks=pytest.mark.slow)]
)
def test_the_maximum_size_is_the_same_for_writing_and_reading(limit):
    too_large = dump_pickle([None] * 98)
    most = [None] * (limit - 3)
    assert decode(io.BytesIO(b"".join(encode(most, limit))), limit) == most
    with pytest.raises(ValueError, match="belong in arrays"):
        [*encode([*most, None], limit)]
    if limit == 100:
        with pytest.raises(MalformedError, match="more than 100 opcodes"):
            decode(io.BytesIO(too_large), limit)


@pytest.mark.parametrize("bits", [7, 8, 15, 16, 31, 63])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_an_int_has_the_bytes_of_pythons_pickle(bits, offset):
    for value in (2**bits + offset, -(2**bits) + max(offset, 0), offset):
        expected = pickle.encode_long(value)
        opcode = pickle.LONG1 + bytes([len(expected)]) + expected
        assert dump_pickle(value)[2:-1] == opcode


@pytest.mark.parametrize("data", [bytes(3), bytes(5)])
def test_data_of_another_size_than_the_shape_are_refused(data):
    with pytest.raises(MalformedError, match="whose bytes do not fit its shape"):
        pickles.decode_array("float32", [1], data)


@pytest.mark.parametrize(
    "keys", [["data", "dtype"], ["data", "dtype", "more", "shape"], ["data", "shape"]]
)
def test_a_record_with_other_keys_than_an_array_is_refused(keys):
    values = {"data": b"", "dtype": "bool", "more": 1, "shape": [0]}
    with pytest.raises(MalformedError, match="bytes that belong to no array"):
        load_pickle(unframed_pickle({key: values[key] for key in keys}))


# What an attacker would send. Where code would run, it makes a file `{marker}`.
CODE = "open('{marker}', 'w').close()"
RUNS_CODE = {
    "GLOBAL": 'cbuiltins\nexec\n(S"{code}"\ntR.',
    "STACK_GLOBAL": '\x80\x04\x8c\x08builtins\x8c\x04exec\x93(S"{code}"\ntR.',
    "INST": '(S"{code}"\nibuiltins\nexec\n.',
    "OBJ": '(cbuiltins\nexec\nS"{code}"\no.',
}


def with_number(opcode: bytes, layout: str, number: int, rest: bytes = b"") -> bytes:
    return b"\x80\x04" + opcode + struct.pack(layout, number) + rest


def in_array(data: bytes, dtype: Any, shape: Any) -> bytes:
    """The pickle of an array's record that need not make sense."""
    return unframed_pickle({"data": data, "dtype": dtype, "shape": shape})


def unframed_pickle(data: Any) -> bytes:
    """A pickle as we write it, but of anything, with keys in the order they have."""
    if type(data) is bytes:
        body = pickle.BINBYTES8 + struct.pack("<Q", len(data)) + data
    elif type(data) is dict:
        pairs = [unframed_pickle(each)[2:-1] for pair in data.items() for each in pair]
        body = b"}(" + b"".join(pairs) + b"u"
    elif type(data) is list:
        body = b"](" + b"".join(unframed_pickle(each)[2:-1] for each in data) + b"e"
    elif type(data) is int:
        size = data.bit_length() // 8 + 1
        body = pickle.LONG1 + bytes([size]) + data.to_bytes(size, "little", signed=True)
    else:
        body = dump_pickle(data)[2:-1]
    return b"\x80\x04" + body + b"."


class Evil:
    def __reduce__(self):
        return exec, (CODE.format(marker="never"),)


ATTACKS = {
    **{f"protocol {n}": pickle.dumps(Evil(), protocol=n) for n in range(6)},
    "NEWOBJ": b"\x80\x02cbuiltins\nint\n)\x81.",
    "NEWOBJ_EX": b"\x80\x04cbuiltins\nint\n)}\x92.",
    "REDUCE without a global": b"\x80\x04NN\x85R.",
    "BUILD": b"\x80\x04}}b.",
    "EXT1": with_number(b"\x82", "<B", 1, b"."),
    "EXT2": with_number(b"\x83", "<H", 1, b"."),
    "EXT4": with_number(b"\x84", "<i", 1, b"."),
    "PERSID": b"P1\n.",
    "BINPERSID": b"\x80\x04NQ.",
    "BYTEARRAY8": with_number(b"\x96", "<Q", 1, b"x."),
    "BYTEARRAY8 that claims much": with_number(b"\x96", "<Q", 2**40, b"."),
    "NEXT_BUFFER": b"\x80\x05\x97.",
    "READONLY_BUFFER": b"\x80\x05\x97\x98.",
    "BINBYTES8 that claims much": with_number(b"\x8e", "<Q", 2**40, b"x."),
    "BINBYTES8 that claims most": with_number(b"\x8e", "<Q", 2**64 - 1, b"x."),
    "BINUNICODE8 that claims much": with_number(b"\x8d", "<Q", 2**40, b"x."),
    "BINBYTES that claims much": with_number(b"B", "<I", 2**32 - 1, b"x."),
    "LONG4 that claims much": with_number(b"\x8b", "<i", 2**31 - 1, b"x."),
    "LONG4 that holds much": with_number(
        b"\x8b", "<i", MEBIBYTE, bytes(MEBIBYTE) + b"."
    ),
    "LONG4 of negative size": with_number(b"\x8b", "<i", -1, b"."),
    "LONG1 of 255 bytes": with_number(b"\x8a", "<B", 255, b"\x7f" * 255 + b"."),
    "LONG1 of 65 bits": unframed_pickle(2**64),
    "LONG1 longer than need be": b"\x80\x04\x8a\x02\x01\x00.",
    "INT of a million digits": b"I" + b"9" * 10**6 + b"\n.",
    "LONG of a million digits": b"L" + b"9" * 10**6 + b"L\n.",
    "FRAME that claims much": with_number(b"\x95", "<Q", 2**62, b"N."),
    "memo bomb": b"\x80\x04]\x94"
    + b"".join(
        b"](" + b"h" + bytes([n]) + b"h" + bytes([n]) + b"e\x94" for n in range(60)
    )
    + b".",
    "LONG_BINPUT far away": with_number(b"]r", "<I", 2**31, b"."),
    "DUP": b"\x80\x04]2\x86.",
    "deep by APPENDS": b"\x80\x04" + b"](" * 10**5 + b"e" * 10**5 + b".",
    "deep by APPEND": b"\x80\x04" + b"]" * 10**5 + b"a" * (10**5 - 1) + b".",
    "deep by SETITEMS": b"\x80\x04" + dump_pickle("k")[2:-1].join([b"}("] * 10**4),
    "deep by TUPLE1": b"\x80\x04N" + b"\x85" * 10**5 + b".",
    "marks only": b"\x80\x04" + b"(" * 10**5 + b".",
    "many objects": b"\x80\x04](" + b"]" * (8 * MEBIBYTE) + b"e.",
    "a tuple": b"\x80\x04).",
    "a set": b"\x80\x04\x8f.",
    "bytes alone": unframed_pickle(b"x"),
    "bytes in a list": unframed_pickle([b"x"]),
    "bytes in a dict": unframed_pickle({"a": b"x"}),
    "bytes as a key": unframed_pickle({b"x": 1}),
    "int as a key": unframed_pickle({1: 1}),
    "list as a key": b"\x80\x04}(]Nu.",
    "keys not in order": unframed_pickle({"b": 1, "a": 2}),
    "a key twice": b"\x80\x04}("
    + 2 * unframed_pickle("a")[2:-1].join([b"", b"N"])
    + b"u.",
    "a key without value": b"\x80\x04}(" + unframed_pickle("a")[2:-1] + b"u.",
    "text that is no UTF-8": with_number(b"\x8d", "<Q", 1, b"\xff."),
    "SETITEMS on a list": b"\x80\x04](NNu.",
    "APPENDS on a dict": b"\x80\x04}(Ne.",
    "APPENDS without a mark": b"\x80\x04]e.",
    "STOP on an empty stack": b"\x80\x04.",
    "STOP on a mark": b"\x80\x04(.",
    "no STOP": b"\x80\x04N",
    "something behind STOP": b"\x80\x04N.N.",
    "something below the top": b"\x80\x04NN.",
    "no PROTO": b"N.",
    "two PROTO": b"\x80\x04\x80\x04N.",
    "PROTO 2": b"\x80\x02N.",
    "PROTO 255": b"\x80\xffN.",
    "unknown opcode": b"\x80\x04\xff.",
    "nothing": b"",
    "array of objects": in_array(bytes(8), "object", [1]),
    "array of pointers": in_array(bytes(8), "O", [1]),
    "array of structures": in_array(bytes(8), "V8", [1]),
    "array of an int dtype": in_array(bytes(8), 1, [1]),
    "array of a listed dtype": in_array(bytes(8), [], [1]),
    "array longer than its data": in_array(bytes(8), "float32", [3]),
    "array shorter than its data": in_array(bytes(8), "float32", [1]),
    "array that claims much": in_array(bytes(8), "float32", [2**31, 2**31]),
    "array whose size wraps around": in_array(b"", "uint8", [2**32, 2**32]),
    "empty array of a huge shape": in_array(b"", "float32", [0, 2**62]),
    "empty array of a hugest shape": in_array(b"", "float32", [0, 2**64 - 1]),
    "array of negative shape": in_array(bytes(4), "float32", [-1, -1]),
    "array of 65 axes": in_array(bytes(4), "float32", [1] * 65),
    "array of many axes": in_array(bytes(4), "float32", [2**63] * 50_000),
    "array of a bool shape": in_array(bytes(1), "uint8", [True]),
    "array of a number as shape": in_array(bytes(1), "uint8", 1),
    "array of text": in_array("text", "uint8", b"\4"),
    "array with more beside": unframed_pickle(
        {"data": b"", "dtype": "bool", "more": 1}
    ),
    "array of odd truth values": in_array(b"\2", "bool", [1]),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_and_allocates_little(name):
    payload = ATTACKS[name]
    content = io.BytesIO(payload)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError) as refusal:
            decode(content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refusal.value)
    assert peak < 4 * MEBIBYTE + 2 * len(payload)


@pytest.mark.parametrize("name", RUNS_CODE)
def test_no_code_is_run_that_a_plain_unpickler_would_run(name, tmp_path):
    marker = tmp_path / "marker"
    code = CODE.format(marker=marker)
    payload = RUNS_CODE[name].format(code=code).encode("latin-1")
    with pytest.raises(MalformedError, match="the opcode `"):
        load_pickle(payload)
    assert not marker.exists()
    pickle.loads(payload)  # the attack is real
    assert marker.exists()


def test_the_unpickler_admits_no_global_even_if_the_opcodes_were_not_checked(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(pickles, "_check_opcodes", lambda *_: None)
    marker = tmp_path / "marker"
    for text in RUNS_CODE.values():
        payload = text.format(code=CODE.format(marker=marker)).encode("latin-1")
        with pytest.raises(MalformedError) as refusal:
            load_pickle(payload)
        assert str(refusal.value.__cause__) == "it requests `builtins.exec`"
    for payload in [ATTACKS["PERSID"], ATTACKS["BINPERSID"]]:
        with pytest.raises(MalformedError) as refusal:
            load_pickle(payload)
        assert str(refusal.value.__cause__) == "it requests a persistent id"
    assert not marker.exists()


def test_random_changes_are_refused_or_are_the_data_that_they_say():
    rng = random.Random(0)
    data = {
        "recipe": {"name": "x", "layers": [64, -3, 0.5, None, True]},
        "leaves": {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3)},
        "mask": np.array([True, False]),
    }
    original = dump_pickle(data)
    refused = 0
    for _ in range(3_000):
        payload = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(payload))
            change = rng.choice(["set", "cut", "insert", "repeat"])
            if change == "set":
                payload[at] = rng.randrange(256)
            elif change == "cut":
                del payload[at : at + rng.randint(1, 9)]
            elif change == "insert":
                payload[at:at] = rng.randbytes(rng.randint(1, 9))
            else:
                payload[at:at] = payload[at : at + 20]
        try:
            again = load_pickle(bytes(payload))
        except MalformedError:
            refused += 1
        else:
            assert dump_pickle(again) == payload
    assert refused > 2_000
