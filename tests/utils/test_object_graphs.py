"""Object graphs: forged nodes are refused immediately and without harm."""

import random
import tracemalloc

import lz4.frame
import numpy as np
import pytest

from rlcli.errors import RlcliError
from rlcli.runs import pickles
from rlcli.runs.pickles import MAX_DEPTH
from rlcli.utils import dumps, loads
from rlcli.utils.pickling import restore_object

MEBIBYTE = 2**20


def tuples(count, width):
    """Nodes of tuples that contain the next one repeatedly; the last is empty."""
    inner = [["tuple", *[[place + 1]] * width] for place in range(2, count + 2)]
    return [*inner, ["tuple"]]


COLLIDING = [each * (2**61 - 1) for each in range(1, 400)]
EVIL = {
    "nothing": [],
    "no list": {"a": 1},
    "text that is no node": ["a"],
    "an array that is no node": [np.zeros(1)],
    "bytes": [b"x"],
    "a reference to nothing": [[1]],
    "a reference far away": [[2**31], ["list"]],
    "a reference to the first entry": [[1], ["list", [0]]],
    "a negative reference": [[-1], ["list"]],
    "a reference by a bool": [[True], ["list"]],
    "two references": [[1, 1], ["list"]],
    "a node without a kind": [[1], []],
    "a node of a number": [[1], 1],
    "a node of an unknown kind": [[1], ["frozenset", 1]],
    "a kind that is no text": [[1], [1]],
    "a node without a reference": [None, ["class"]],
    "a tuple that contains itself": [[1], ["tuple", [1], [1]]],
    "deep tuples": [[1], *tuples(10**4, 1)],
    "a key that takes for ever to hash": [[1], ["dict", [2], 1], *tuples(60, 2)],
    "a set that takes for ever to hash": [[1], ["set", [2]], *tuples(60, 2)],
    "a key hashed over and over": [
        *[[1], ["list"], *tuples(20, 2)],
        *[["dict", [2], None] for _ in range(100)],
    ],
    "keys that collide": [[1], ["dict", *[x for n in COLLIDING for x in (n, None)]]],
    "elements that collide": [[1], ["set", *COLLIDING]],
    "list as a key": [[1], ["dict", [2], None], ["list"]],
    "list in a set": [[1], ["set", [2]], ["list"]],
    "a key without value": [[1], ["dict", 1]],
    "complex of text": [[1], ["complex", "1", "2"]],
    "complex of ints": [[1], ["complex", 1, 2]],
    "complex of one part": [[1], ["complex", 1.0]],
    "an int of a number": [[1], ["int", 1]],
    "an int of letters": [[1], ["int", "0xz"]],
    "an array of a list": [[1], ["array", [1]]],
    "an array of two parts": [[1], ["array", np.zeros(1), np.zeros(1)]],
    "bytes of a list": [[1], ["bytes", [1]]],
    "scalar with a shape": [[1], ["scalar", np.zeros(1)]],
}


@pytest.mark.parametrize("name", EVIL)
def test_evil_nodes_are_refused_immediately_and_allocate_little(name):
    tracemalloc.start()
    try:
        with pytest.raises(pickles.MalformedError) as refusal:
            restore_object(EVIL[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refusal.value)
    assert peak < 4 * MEBIBYTE


def test_tuples_are_restored_as_deep_as_they_are_written():
    deepest = ()
    for _ in range(MAX_DEPTH - 1):
        deepest = (deepest,)
    assert loads(dumps(deepest)) == deepest
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        dumps((deepest,))


def test_randomly_changed_files_are_refused_or_are_supported_objects():
    rng = random.Random(0)
    shared = [1, (2.5, "x")]
    obj = {"a": shared, (1, b"k"): {1j, None}, "x": np.arange(3), "again": (shared,)}
    original = lz4.frame.decompress(dumps(obj))
    refusals = 0
    for _ in range(1_000):
        content = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(content))
            if rng.random() < 0.5:
                content[at] = rng.randrange(256)
            else:
                content[at : at + rng.randint(0, 9)] = rng.randbytes(rng.randint(0, 9))
        try:
            again = loads(lz4.frame.compress(bytes(content)))
        except RlcliError:
            refusals += 1
        else:
            assert dumps(loads(dumps(again))) == dumps(again)
    assert 600 < refusals < 1_000
