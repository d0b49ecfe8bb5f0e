"""Pickling: what goes in comes out, references too; what was forged does not."""

from __future__ import annotations

import collections
import io
import math
import os
import pickle
import pickletools
import random
import struct
import tracemalloc

import hypothesis.extra.numpy as numpy_strategies
import jax
import jax.numpy as jnp
import lz4.frame
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcli import checkpoint, pickles
from rlcli.errors import RlcliError
from rlcli.utils import dump, dumps, load, loads
from rlcli.utils.decoding import decoded
from rlcli.utils.encoding import MAX_OPCODES
from rlcli.utils.kinds import is_policy

MEBIBYTE = 2**20


def assert_same(actual, expected):
    """The same to the bit, and of the same types."""
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
def test_whatever_is_stored_comes_back_and_gives_the_same_bytes_again(obj):
    stored = dumps(obj)
    again = loads(stored)
    assert_same(again, obj)
    assert dumps(again) == stored


def test_it_is_a_bare_lz4_frame_of_a_pickle_without_a_global():
    obj = {"a": [1, -(2**70), None, True, 0.5], ("b", 2): {3}, "c": b"x"}
    stored = dumps(obj)
    payload = lz4.frame.decompress(stored)
    assert pickle.loads(payload) == obj
    assert pickle.loads(lz4.frame.decompress(dumps(np.array([[1], [2]], "<i2")))) == (
        *(frozenset({"array"}), "int16", (2, 1), b"\1\0\2\0"),
    )
    everything = [obj, np.zeros(2), np.float32(1), 1j, [(1, 2)] * 2]
    opcodes = pickletools.genops(lz4.frame.decompress(dumps(everything)))
    code = {"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "REDUCE", "BUILD"}
    assert not {opcode.name for opcode, _, _ in opcodes} & code


def test_references_inside_one_object_are_kept():
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
def test_what_is_one_object_stays_one(shared):
    first, second, inner = loads(dumps([shared, shared, {"again": shared}]))
    assert first is second is inner["again"]


def test_equal_objects_that_are_two_stay_two():
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


def test_a_web_of_references_takes_no_more_room_than_there_are_objects():
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


def test_arrays_come_back_as_numpys_and_may_be_written_to():
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


def test_every_dtype_of_numbers_is_kept_whatever_the_order_of_bytes_and_axes():
    for dtype in pickles.DTYPES.values():
        assert_same(loads(dumps(np.ones((2, 1), dtype))), np.ones((2, 1), dtype))
    array = np.arange(12, dtype="<i4").reshape(3, 4)
    for other in (array.astype(">i4"), np.asfortranarray(array)):
        assert dumps(other) == dumps(array)


def test_integers_of_any_size_are_kept():
    sizes = [0, 1, -1, 127, 128, -128, -129, 255, 2**63, -(2**64), 2**2039, -(2**2040)]
    again = loads(dumps([*sizes, 2**2047, 3**9_000]))
    assert again == [*sizes, 2**2047, 3**9_000]


def test_the_bytes_do_not_depend_on_the_order_of_a_set():
    one, other = {0, 8}, {8, 0}
    assert [*one] != [
        *other
    ]  # as that of words is from one start of Python to the next
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
def test_anything_else_is_a_type_error_that_names_its_path(name):
    with pytest.raises(TypeError, match=r"^`/deep/1/2`: expected"):
        dumps({"deep": [0, (0, 0, BAD[name])]})


def test_the_path_leads_into_keys_sets_and_the_object_itself():
    with pytest.raises(TypeError, match=r"`/a/frozenset\(\)`"):
        dumps({"a": {frozenset(): 1}})
    with pytest.raises(TypeError, match=r"`/a/\(1, 2\)/{}`"):
        dumps({"a": {(1, 2): {frozenset()}}})
    with pytest.raises(TypeError, match=r"^`/`: expected .* got <class 'function'>$"):
        dumps(is_policy)


def nested(depth):
    data = []
    for _ in range(depth - 1):
        data = [data]
    return data


def test_what_may_be_written_may_be_read_and_no_more():
    deepest = nested(pickles.MAX_DEPTH)
    assert loads(dumps(deepest)) == deepest
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        dumps(nested(pickles.MAX_DEPTH + 1))
    inner = deepest
    while inner:
        inner = inner[0]
    inner.append(np.zeros(1))
    assert loads(dumps(deepest)) == deepest


def test_too_many_values_are_refused_where_they_are_written(monkeypatch):
    monkeypatch.setattr("rlcli.utils.encoding.MAX_OPCODES", 1_000)
    most = [None] * (1_000 - 6)  # PROTO, EMPTY_LIST, MEMOIZE, MARK, APPENDS, STOP
    monkeypatch.setattr("rlcli.utils.decoding.MAX_OPCODES", 1_000)
    assert loads(dumps(most)) == most
    with pytest.raises(ValueError, match="belong into arrays"):
        dumps([*most, None])
    assert MAX_OPCODES > 1_000_000


def test_files_are_written_whole_into_folders_that_may_be_missing(tmp_path):
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


def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("nothing", "pipe", "."):
        with pytest.raises(RlcliError, match="there is no file"):
            load(tmp_path / name)


def refused(stored, why=""):
    with pytest.raises(RlcliError, match="is not opened") as error:
        loads(stored)
    assert why in str(error.value)
    assert "\n" not in error.value.message


def test_what_is_no_frame_is_refused():
    stored = dumps([1, 2, 3])
    refused(b"", "no lz4 frame")
    refused(pickle.dumps([1]), "no lz4 frame")
    refused(checkpoint.dumps({"a": 1}), "no lz4 frame")
    refused(b"\x50\x2a\x4d\x18" + stored, "no lz4 frame")  # a skippable one
    refused(stored + b"x", "does not end with the data")
    refused(stored + stored, "does not end with the data")
    refused(stored[:-1], "does not end with the data")
    refused(stored[:6] + b"\xff" * 9 + stored[15:])
    large = dumps(np.random.default_rng(0).bytes(2 * pickles.PIECE))
    assert len(loads(large)) == 2 * pickles.PIECE
    refused(large + bytes(2 * pickles.PIECE), "something behind")
    with pytest.raises(TypeError):
        loads("text")


def payload(*parts):
    """A pickle: bytes as they are, other values as they are written."""
    body = b""
    for part in parts:
        if not isinstance(part, bytes):
            part = lz4.frame.decompress(dumps(part))[2:-1]
        body += part
    return b"\x80\x04" + body + b"."


def get(number):
    return pickle.LONG_BINGET + struct.pack("<I", number)


def array(dtype, shape, data, tag="array"):
    return payload(b"(", b"(" + _raw(tag) + b"\x91", _raw(dtype), shape, data, b"t")


def _raw(text):
    """Text without a note in the memo."""
    return pickle.BINUNICODE8 + struct.pack("<Q", len(text)) + text.encode()


def _data(data):
    return pickle.BINBYTES8 + struct.pack("<Q", len(data)) + data


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('code was run')",)


def tuples(count, width):
    """Tuples of the one before, over and over; the last one on top."""
    body = b"(N" + b"t\x94"
    for number in range(count):
        body += b"(" + get(number) * width + b"t\x94"
    return body


NUMBER = b"\x8a\x01\x01"
COLLIDING = [each * (2**61 - 1) for each in range(1, 400)]
ATTACKS = {
    **{f"protocol {n}": pickle.dumps(Evil(), protocol=n) for n in range(6)},
    "GLOBAL": b"\x80\x04cbuiltins\nexec\n(S'1'\ntR.",
    "PERSID": b"\x80\x04P1\n.",
    "EXT1": b"\x80\x04\x82\x01.",
    "REDUCE": b"\x80\x04NN\x85R.",
    "BYTEARRAY8": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",
    "bytes that claim much": payload(b"\x8e" + struct.pack("<Q", 2**40) + b"x"),
    "bytes that claim most": payload(b"\x8e" + struct.pack("<Q", 2**64 - 1) + b"x"),
    "text that claims much": payload(b"\x8d" + struct.pack("<Q", 2**40) + b"x"),
    "an int that claims much": payload(b"\x8b" + struct.pack("<i", 2**31 - 1) + b"x"),
    "an int of negative size": payload(b"\x8b" + struct.pack("<i", -1)),
    "text that is no UTF-8": payload(b"\x8d" + struct.pack("<Q", 1) + b"\xff"),
    "a reference to nothing": payload(get(0)),
    "a reference far away": payload(b"]\x94(", get(2**31), b"e"),
    "many objects": payload(b"]\x94(" + b"\x8f\x94" * MEBIBYTE + b"e"),
    "many numbers": payload(b"]\x94(" + b"N" * (2 * MEBIBYTE) + b"e"),
    "deep": payload(b"]\x94(" * 10**5 + b"e" * 10**5),
    "deep tuples": payload(b"(" * 10**5 + b"t" * 10**5),
    "a key that takes for ever to hash": payload(
        b"}\x94(" + tuples(60, 2).replace(get(0), get(1)) + b"Nu"
    ),
    "a set that takes for ever to hash": payload(
        tuples(60, 2), b"\x8f\x94(", get(60), b"\x90"
    ),
    "a key too deep for the stack of C": payload(
        tuples(5_000, 1), b"}\x94(", get(5_000), b"Nu"
    ),
    "a key hashed over and over": payload(
        tuples(20, 2),
        b"]\x94("
        + b"}\x94("
        + get(20)
        + b"Nu"
        + (b"}\x94(" + get(20) + b"Nu") * 99
        + b"e",
    ),
    "keys that collide": payload(
        b"}\x94(", *[x for n in COLLIDING for x in (n, b"N")], b"u"
    ),
    "elements that collide": payload(b"\x8f\x94(", *COLLIDING, b"\x90"),
    "keys in groups": payload(b"}\x94(" + NUMBER + b"Nu(" + NUMBER + b"Nu"),
    "a container without a note": payload(b"](e"),
    "a frozenset": payload(b"(" + NUMBER + b"\x91"),
    "a tag alone": payload(b"(" + _raw("array") + b"\x91"),
    "a tag in a list": payload(b"]\x94((" + _raw("array") + b"\x91e"),
    "a tag behind another": payload(
        b"(" + (b"(" + _raw("complex") + b"\x91") * 3 + b"t"
    ),
    "a tag in the memo": payload(b"((" + _raw("array") + b"\x91\x94" + b"t"),
    "an unknown tag": payload(b"((" + _raw("class") + b"\x91t"),
    "an array of too few parts": payload(b"((" + _raw("array") + b"\x91t"),
    "complex of text": payload(b"((" + _raw("complex") + b"\x91", "1", "2", b"t"),
    "complex of ints": payload(b"((" + _raw("complex") + b"\x91", 1, 2, b"t"),
    "array of objects": array("object", (1,), _data(bytes(8))),
    "array of structures": array("V8", (1,), _data(bytes(8))),
    "array longer than its data": array("float32", (3,), _data(bytes(8))),
    "array that claims much": array("float32", (2**31, 2**31), _data(bytes(8))),
    "empty array of a huge shape": array("float32", (0, 2**62), _data(b"")),
    "array of negative shape": array("float32", (-1, -1), _data(bytes(4))),
    "array of a bool shape": array("uint8", (True,), _data(bytes(1))),
    "array of a listed shape": array("uint8", [1], _data(bytes(1))),
    "array of text": array("uint8", (1,), _raw("x")),
    "array of odd truth values": array("bool", (1,), _data(b"\2")),
    "scalar with a shape": array("uint8", (1,), _data(b"\2"), tag="scalar"),
    "list as a key": payload(b"}\x94(", [], b"Nu"),
    "list in a set": payload(b"\x8f\x94(", [], b"\x90"),
    "a key without value": payload(b"}\x94(" + NUMBER + b"u"),
    "a set's group in a list": payload(b"]\x94(" + NUMBER + b"\x90"),
    "a group without a mark": payload(b"]\x94e"),
    "a group for nothing": payload(b"(e"),
    "nothing": payload(),
    "two things": payload(b"NN"),
    "an open mark": payload(b"(N"),
    "no end": payload(b"N")[:-1],
    "something behind the end": payload(b"N") + b"N",
    "no protocol": b"N.",
    "protocol 2": b"\x80\x02N.",
    "an unknown opcode": payload(b"\xff"),
    "empty": b"",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_at_once_and_allocates_little(name, monkeypatch):
    if name.startswith("many"):  # a million would take seconds
        monkeypatch.setattr("rlcli.utils.decoding.MAX_OPCODES", 2**14)
    content = memoryview(ATTACKS[name])
    tracemalloc.start()
    try:
        with pytest.raises(pickles.MalformedError) as refusal:
            decoded(content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refusal.value)
    assert peak < 4 * MEBIBYTE + 2 * len(content)


def test_a_small_frame_cannot_claim_to_hold_much():
    stored = bytearray(lz4.frame.compress(payload(b"N"), store_size=True))
    assert loads(stored) is None
    stored[6:14] = struct.pack("<Q", 2**60)  # the size that its header claims
    tracemalloc.start()
    with pytest.raises(RlcliError):
        loads(bytes(stored))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEBIBYTE


def test_no_code_is_run_that_pickle_would_run(tmp_path):
    marker = tmp_path / "marker"
    code = f"open({str(marker)!r}, 'w').close()"
    attack = f'cbuiltins\nexec\n(S"{code}"\ntR.'.encode()
    refused(lz4.frame.compress(b"\x80\x04" + attack), "the opcode b'c'")
    assert not marker.exists()
    pickle.loads(b"\x80\x04" + attack)  # the attack is real
    assert marker.exists()


def test_random_changes_are_refused_or_are_an_object_that_can_be_written():
    rng = random.Random(0)
    shared = [1, (2.5, "x")]
    obj = {"a": shared, (1, b"k"): {1j, None}, "x": np.arange(3), "again": (shared,)}
    original = lz4.frame.decompress(dumps(obj))
    refusals = 0
    for _ in range(3_000):
        content = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(content))
            if rng.random() < 0.5:
                content[at] = rng.randrange(256)
            else:
                content[at : at + rng.randint(0, 9)] = rng.randbytes(rng.randint(0, 9))
        try:
            again = decoded(memoryview(bytes(content)))
        except pickles.MalformedError:
            refusals += 1
        else:
            assert_same(loads(dumps(again)), again)
    assert refusals > 2_000


def test_numbers_that_are_not_finite_are_kept_as_elements():
    again = loads(dumps({math.nan, math.inf, complex(math.nan, 0)}))
    assert sorted(map(repr, again)) == ["(nan+0j)", "inf", "nan"]
    assert io.BytesIO(dumps(again)).read(4) == b"\x04\x22\x4d\x18"
