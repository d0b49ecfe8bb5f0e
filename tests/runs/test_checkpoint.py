"""The files: header, frame, checksum, and atomic writing."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import pickle
import random
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from typing import Any

import lz4.frame
import numpy as np
import pytest
from folders import checkpoint_bytes

from rlcli.errors import RlcliError
from rlcli.runs import checkpoint, pickles
from rlcli.xla.machine import Available, format_size

MEBIBYTE = 2**20
DATA = {
    "recipe": {"updater": "ppo", "layers": [64, 64], "rate": 1e-3, "memory": None},
    "leaves": {"w": np.arange(6, dtype=np.float32).reshape(2, 3)},
}


def forge_file(frame: bytes, size: int, version: int = 1) -> bytes:
    """A file with a correct checksum around any frame, as the documentation says."""
    head = b"\x89rlcli\r\n" + version.to_bytes(4, "little") + size.to_bytes(8, "little")
    return head + hashlib.sha256(head + frame).digest() + frame


def holding(payload: bytes) -> bytes:
    return forge_file(lz4.frame.compress(payload), len(payload))


def payload_of(data: Any) -> bytes:
    return b"".join(pickles.encode(data))


def assert_is_data(actual: Any) -> None:
    assert actual["recipe"] == DATA["recipe"]
    np.testing.assert_array_equal(actual["leaves"]["w"], DATA["leaves"]["w"])


def refusal(data: bytes) -> str:
    with pytest.raises(RlcliError) as error:
        checkpoint.from_bytes(data, source="x.pkl.lz4")
    assert "`x.pkl.lz4`" in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint
    assert error.value.code == 1
    return error.value.message


def test_a_file_is_laid_out_as_documented():
    data = checkpoint_bytes(DATA)
    payload = lz4.frame.decompress(data[52:])
    assert data == forge_file(data[52:], len(payload))
    assert pickle.loads(payload) == {
        "recipe": DATA["recipe"],
        "leaves": {
            "w": {
                "data": struct.pack("<6f", 0, 1, 2, 3, 4, 5),
                "dtype": "float32",
                "shape": [2, 3],
            }
        },
    }


def test_what_was_read_gives_the_same_bytes_again():
    data = checkpoint_bytes(DATA)
    again = checkpoint.from_bytes(data)
    assert_is_data(again)
    assert checkpoint_bytes(again) == data
    assert checkpoint_bytes(dict(reversed(DATA.items()))) == data


def test_equal_data_are_equal_bytes_in_another_process(tmp_path):
    program = (
        "import sys, numpy; from rlcli.runs import checkpoint;"
        "assert 'jax' not in sys.modules;"
        "data = {'b': numpy.arange(9.0), 'a': list({'x': 1, 'y': 2})};"
        "checkpoint.write(sys.argv[1], data)"
    )
    path = tmp_path / "x.pkl.lz4"
    subprocess.run([sys.executable, "-c", program, path], check=True)
    assert path.read_bytes() == checkpoint_bytes({"a": ["x", "y"], "b": np.arange(9.0)})


def test_large_and_highly_compressible_data_come_back(tmp_path):
    zeros = np.zeros((3, MEBIBYTE), np.float32)
    noise = np.random.default_rng(0).integers(0, 256, 5 * MEBIBYTE, np.uint8)
    path = tmp_path / "x.pkl.lz4"
    checkpoint.write(path, {"zeros": zeros, "noise": noise})
    again = checkpoint.read(path)
    np.testing.assert_array_equal(again["zeros"], zeros)
    np.testing.assert_array_equal(again["noise"], noise)
    assert path.stat().st_size < 6 * MEBIBYTE


def test_every_flip_of_a_bit_is_refused():
    data = checkpoint_bytes(DATA)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            refusal(bytes(flipped))


def test_every_truncation_is_refused():
    data = checkpoint_bytes(DATA)
    for length in range(len(data)):
        refusal(data[:length])
    assert refusal(b"") == "`x.pkl.lz4` is empty"
    assert refusal(data[:40]) == "`x.pkl.lz4` is truncated"


def test_anything_appended_is_refused():
    assert "checksum" in refusal(checkpoint_bytes(DATA) + b"\0")


def test_a_newer_format_is_named():
    message = refusal(forge_file(b"whatever comes", 2**63, version=2))
    assert message == "`x.pkl.lz4` has format version 2, but this rlcli only supports 1"
    assert "header" in refusal(forge_file(lz4.frame.compress(b"N."), 2, version=0))


def test_a_size_that_lz4_cannot_compress_so_much_is_refused_by_the_header():
    frame = lz4.frame.compress(PAYLOAD)
    most = 255 * len(frame)
    assert "header is invalid" in refusal(forge_file(frame, most + 1))
    assert "header is invalid" not in refusal(forge_file(frame, most))


def zip_archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (zip_archive(), "PyTorch"),
        (pickle.dumps({}), "plain pickle"),
        (lz4.frame.compress(pickle.dumps({})), "coax"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"environment: CartPole-v1\n", "not an rlcli checkpoint"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not an rlcli checkpoint"),
        (b"\0", "not an rlcli checkpoint"),
    ],
)
def test_a_foreign_file_is_named(data, what):
    assert what in refusal(data)


# Frames around a sound pickle, each in a file whose checksum is correct.
PAYLOAD = payload_of(DATA)
FRAME = lz4.frame.compress(PAYLOAD)
SKIPPABLE = b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip"


def frame_that_claims(size: int) -> bytes:
    """An lz4 frame whose own header claims a size."""
    compressor = lz4.frame.LZ4FrameCompressor()
    begin = compressor.begin(source_size=size)
    return begin + lz4.frame.compress(PAYLOAD)[7:]


FRAMES = {
    "trailing byte": forge_file(FRAME + b"\0", len(PAYLOAD)),
    "two frames": forge_file(FRAME + FRAME, len(PAYLOAD)),
    "two frames, both claimed": forge_file(FRAME + FRAME, 2 * len(PAYLOAD)),
    "an empty frame behind": forge_file(FRAME + lz4.frame.compress(b""), len(PAYLOAD)),
    "much behind": forge_file(FRAME + bytes(MEBIBYTE), len(PAYLOAD)),
    "a skippable frame behind": forge_file(FRAME + SKIPPABLE, len(PAYLOAD)),
    "a skippable frame before": forge_file(SKIPPABLE + FRAME, len(PAYLOAD)),
    "no frame": forge_file(b"", 0),
    "no frame but a claim": forge_file(b"", 10),
    "an empty frame": forge_file(lz4.frame.compress(b""), 0),
    "a frame cut short": forge_file(FRAME[:-1], len(PAYLOAD)),
    "a frame without its end": forge_file(FRAME[:-4], len(PAYLOAD)),
    "a frame's header only": forge_file(FRAME[:7], len(PAYLOAD)),
    "a claim one too small": forge_file(FRAME, len(PAYLOAD) - 1),
    "a claim one too large": forge_file(FRAME, len(PAYLOAD) + 1),
    "a claim of nothing": forge_file(FRAME, 0),
    "a claim of all": forge_file(FRAME, 2**64 - 1),
    "the largest claim to pass": forge_file(FRAME, 255 * len(FRAME)),
    "a large file that claims more": forge_file(bytes(MEBIBYTE), 256 * MEBIBYTE),
    "a large file that claims much": forge_file(
        FRAME + bytes(MEBIBYTE), 255 * MEBIBYTE
    ),
    "a frame that claims much": forge_file(frame_that_claims(2**62), len(PAYLOAD)),
    "a bomb": forge_file(lz4.frame.compress(bytes(100 * MEBIBYTE)), len(PAYLOAD)),
    "bombs": forge_file(lz4.frame.compress(bytes(50 * MEBIBYTE)) * 2, 1000),
    "noise": forge_file(random.Random(0).randbytes(10_000), 10_000),
    "noise in a frame": forge_file(
        FRAME[:7] + random.Random(0).randbytes(9_000), 9_000
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_an_unsound_frame_is_refused_and_allocates_little(name):
    data = FRAMES[name]
    tracemalloc.start()
    try:
        refusal(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MEBIBYTE


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_file_that_would_run_code_is_refused_and_runs_none(protocol, tmp_path):
    path, marker = tmp_path / "x.pkl.lz4", tmp_path / "marker"
    payload = pickle.dumps({"leaves": Evil(marker)}, protocol=protocol)
    path.write_bytes(holding(payload))
    with pytest.raises(RlcliError, match="was not written by rlcli and is refused"):
        checkpoint.read(path)
    assert not marker.exists()
    pickle.loads(payload)  # the attack is real
    assert marker.exists()


def test_random_bytes_behind_a_correct_checksum_are_refused():
    rng = random.Random(0)
    for _ in range(1_500):
        payload, frame = bytearray(PAYLOAD), bytearray(FRAME)
        for changed in (payload, frame):
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        for data in (holding(payload), forge_file(frame, len(PAYLOAD))):
            try:
                again = checkpoint.from_bytes(data)
            except RlcliError:
                continue
            inside = lz4.frame.decompress(data[52:])
            assert payload_of(again) == inside  # nothing but what it says


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "x.pkl.lz4"
    checkpoint.write(path, {"old": 1})
    checkpoint.write(str(path), {"new": 2})
    assert checkpoint.read(str(path)) == {"new": 2}
    assert os.listdir(tmp_path) == ["x.pkl.lz4"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failure_to_write_leaves_the_old_file_and_no_other(
    function, tmp_path, monkeypatch
):
    path = tmp_path / "x.pkl.lz4"
    checkpoint.write(path, DATA)

    def fail(*_):
        names = os.listdir(tmp_path)
        assert [name for name in names if not name.startswith(".")] == ["x.pkl.lz4"]
        assert len(names) == 2
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(RlcliError, match="cannot be written: No space left"):
            checkpoint.write(path, {"new": 2})
    assert_is_data(checkpoint.read(path))
    assert os.listdir(tmp_path) == ["x.pkl.lz4"]


def test_data_that_are_not_plain_leave_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "x.pkl.lz4"
    checkpoint.write(path, DATA)
    with pytest.raises(TypeError, match="`/a/0`"):
        checkpoint.write(path, {"a": [object()]})
    assert_is_data(checkpoint.read(path))
    assert os.listdir(tmp_path) == ["x.pkl.lz4"]


def test_a_folder_that_is_not_there_or_is_a_file_cannot_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    for folder in ["absent", "file"]:
        with pytest.raises(RlcliError, match="cannot be written"):
            checkpoint.write(tmp_path / folder / "x.pkl.lz4", DATA)


def test_what_is_no_readable_file_gives_one_clear_line(tmp_path, monkeypatch):
    with pytest.raises(RlcliError, match="there is no checkpoint"):
        checkpoint.read(tmp_path / "absent.pkl.lz4")
    with pytest.raises(RlcliError, match="is a folder or a device, not a file"):
        checkpoint.read(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RlcliError, match="is a folder or a device, not a file"):
        checkpoint.read(tmp_path / "pipe")
    path = tmp_path / "x.pkl.lz4"
    checkpoint.write(path, DATA)

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RlcliError, match="cannot be read: Permission denied"):
        checkpoint.read(path)


def test_a_huge_foreign_file_is_refused_by_its_first_bytes(tmp_path):
    path = tmp_path / "film"
    with path.open("wb") as file:
        file.truncate(2**40)  # sparse
    with pytest.raises(RlcliError, match="not an rlcli checkpoint"):
        checkpoint.read(path)


def test_a_file_is_read_where_itself_its_content_and_its_arrays_fit_into_memory(
    tmp_path, monkeypatch
):
    path = tmp_path / "x.pkl.lz4"
    checkpoint.write(path, DATA)
    needed = path.stat().st_size + 2 * len(PAYLOAD)
    available = Available(needed, "physical memory")
    monkeypatch.setattr(checkpoint, "available_memory", lambda: available)
    assert_is_data(checkpoint.read(path))
    available = available._replace(size=needed - 1)
    with pytest.raises(RlcliError) as caught:
        checkpoint.read(path)
    assert caught.value.message == (
        f"reading `{path}` needs {format_size(needed)} of memory, but only "
        f"{format_size(needed - 1)} are available"
    )
    available = None  # unknown: it is tried
    assert_is_data(checkpoint.read(path))


def test_data_behind_a_frame_that_ends_with_a_piece_is_refused(monkeypatch):
    monkeypatch.setattr(checkpoint.pickles, "PIECE_SIZE", len(FRAME))
    assert checkpoint.from_bytes(forge_file(FRAME, len(PAYLOAD))) is not None
    assert "frame" in refusal(forge_file(FRAME + b"\0", len(PAYLOAD)))
