"""Decoding: forged pickles are refused immediately and without harm."""

import pickle
import random
import struct
import tracemalloc

import lz4.frame
import numpy as np
import pytest

from rlcli.runs import pickles
from rlcli.utils import dumps, loads
from rlcli.utils.decoding import decode_object

MEBIBYTE = 2**20


def payload(*parts):
    """A pickle of raw bytes and encoded values."""
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
    """Text that is not memoized."""
    return pickle.BINUNICODE8 + struct.pack("<Q", len(text)) + text.encode()


def _data(data):
    return pickle.BINBYTES8 + struct.pack("<Q", len(data)) + data


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('code was run')",)


def tuples(count, width):
    """Tuples that contain the previous one repeatedly; the last is on top."""
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
    "BYTEARRAY8": payload(b"\x96" + struct.pack("<Q", 2**40)),
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
        tuples(60, 2), b"}\x94(", get(60), b"Nu"
    ),
    "a set that takes for ever to hash": payload(
        tuples(60, 2), b"\x8f\x94(", get(60), b"\x90"
    ),
    "a key too deep for the stack of C": payload(
        tuples(5_000, 1), b"}\x94(", get(5_000), b"Nu"
    ),
    "a key hashed over and over": payload(
        tuples(20, 2),
        b"]\x94(" + (b"}\x94(" + get(20) + b"Nu") * 100 + b"e",
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
    "another protocol": b"\x80\x02N.",
    "an unknown opcode": payload(b"\xff"),
    "empty": b"",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_immediately_and_allocates_little(name, monkeypatch):
    if name.startswith("many"):  # a million would take seconds
        monkeypatch.setattr("rlcli.utils.decoding.MAX_OPCODES", 2**14)
    content = memoryview(ATTACKS[name])
    tracemalloc.start()
    try:
        with pytest.raises(pickles.MalformedError) as refusal:
            decode_object(content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refusal.value)
    assert peak < 4 * MEBIBYTE + 2 * len(content)


def test_randomly_changed_pickles_are_refused_or_are_supported_objects():
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
            again = decode_object(memoryview(bytes(content)))
        except pickles.MalformedError:
            refusals += 1
        else:
            assert dumps(loads(dumps(again))) == dumps(again)
    assert refusals > 2_000
