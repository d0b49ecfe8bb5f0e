"""Files that are written whole or not at all, and their JSON."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from rlcli.errors import RlcliError
from rlcli.files import merge_json, read_json, replace_file, to_json


def test_a_replaced_file_is_the_new_one_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "a.json"
    replace_file(path, b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    replace_file(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_knows_numbers_of_numpy_and_no_nan():
    value = {"a": np.float32(0.5), 3: [np.int64(2), float("nan")], "p": Path("x/y")}
    assert json.loads(to_json(value)) == {"a": 0.5, "3": [2, None], "p": "x/y"}


def test_merging_sets_fields_and_leaves_the_others(tmp_path):
    path = tmp_path / "a.json"
    assert read_json(path) == {}
    merge_json(path, {"a": 1, "b": 2})
    merge_json(path, {"b": 3})
    assert read_json(path) == {"a": 1, "b": 3}


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b""])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(RlcliError, match=r"run\.json` is damaged"):
        read_json(path)
