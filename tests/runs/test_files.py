"""Files that are written whole or not at all, and their JSON."""

import errno
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from wording import mentions

from rlcli.errors import RlcliError
from rlcli.runs import locks
from rlcli.runs.files import (
    explain_file_errors,
    merge_json,
    open_regular,
    read_json,
    replace_file,
    to_json,
)
from rlcli.runs.run_folder import Run


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
    with pytest.raises(RlcliError, match=r"json` cannot be written: No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_sync_folders_is_no_error(
    code, tmp_path, monkeypatch
):
    """As of SMB and some virtual machines; any other error of the disk is one."""

    def fail(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    replace_file(tmp_path / "a.json", b"new")
    assert (tmp_path / "a.json").read_bytes() == b"new"
    code = errno.EIO
    with pytest.raises(RlcliError, match="cannot be written"):
        replace_file(tmp_path / "a.json", b"newer")


def test_json_knows_numbers_of_numpy_and_no_nan():
    value = {"a": np.float32(0.5), 3: [np.int64(2), float("nan")], "p": Path("x/y")}
    assert json.loads(to_json(value)) == {"a": 0.5, "3": [2, None], "p": "x/y"}


def test_a_file_that_is_full_of_nothing_counts_as_lost(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"")
    assert read_json(path) == {}


@pytest.mark.parametrize("name", ["\0", "\ud800"])
def test_a_file_whose_name_no_file_can_have_is_missing(name, tmp_path):
    assert read_json(tmp_path / name / "a.json") == {}


def test_a_replaced_link_is_replaced_and_its_target_stays(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"precious")
    link.symlink_to(target)
    replace_file(link, b"new")
    assert target.read_bytes() == b"precious"
    assert not link.is_symlink()
    assert link.read_bytes() == b"new"


def test_threads_may_replace_one_file_at_once(tmp_path):
    path = tmp_path / "a"
    contents = [bytes([65 + i]) * 10_000 for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: replace_file(path, each), contents * 20))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_merging_sets_fields_and_leaves_the_others(tmp_path):
    path = tmp_path / "a.json"
    assert read_json(path) == {}
    merge_json(path, {"a": 1, "b": 2})
    merge_json(path, {"b": 3})
    assert read_json(path) == {"a": 1, "b": 3}


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b"[" * 10**6])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(RlcliError, match=r"run\.json` is damaged"):
        read_json(path)


def test_an_error_of_the_disk_that_nobody_explains_names_the_file():
    with pytest.raises(RlcliError) as caught, explain_file_errors():
        raise OSError(28, "No space left on device", "runs/lake/log.txt")
    assert mentions(
        caught.value.message, "`runs/lake/log.txt`", "No space left on device"
    )
    assert "free space" in caught.value.hint


@pytest.mark.parametrize("value", ["[],", '{"b":0},', "0,0,0,0,0,"])
def test_json_that_would_fill_the_memory_is_damaged(tmp_path, value):
    path = tmp_path / "run.json"
    path.write_text('{"a": [' + value * 2**20 + "0]}")
    with pytest.raises(RlcliError, match="is damaged: it has too many values"):
        read_json(path)


def test_a_closed_pipe_is_no_error_of_a_file():
    with pytest.raises(BrokenPipeError), explain_file_errors():
        raise BrokenPipeError(32, "Broken pipe")


def test_films_are_not_written_through_a_link(tmp_path):
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".000000100.gif.7.8.tmp").write_bytes(b"")
    run.films.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RlcliError, match="symbolic link"):
        run.make_films_folder()
    run.remove_temporaries()
    assert [*(tmp_path / "elsewhere").iterdir()]


def test_a_file_that_another_folder_has_too_is_read_but_not_changed(tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.write_text("1")
    os.link(theirs, ours)
    with open_regular(ours, os.O_RDONLY) as file:
        assert file.read() == "1"
    for flags in (os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREAT):
        with pytest.raises(RlcliError, match="has another name, a hard link"):
            open_regular(ours, flags, "ab")
    replace_file(ours, b"2")  # a new file in its place
    assert (theirs.read_text(), ours.read_text()) == ("1", "2")


def test_a_lock_that_is_a_hard_link_is_not_signed(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("precious")
    (tmp_path / "run").mkdir()
    os.link(theirs, tmp_path / "run" / ".lock")
    with pytest.raises(RlcliError, match="hard link"):
        locks.sign(tmp_path / "run")
    assert theirs.read_text() == "precious"
