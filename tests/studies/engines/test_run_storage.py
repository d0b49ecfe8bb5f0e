"""Run storage: files in a store that fsspec knows, and errors before a sweep begins."""

import os
import sys

import pytest
from stores import serve_s3

from rlcli.errors import RlcliError
from rlcli.studies.engines.run_storage import RunStorage, open_storage

pytest.importorskip("fsspec")
pytestmark = pytest.mark.filterwarnings("ignore")  # of moto and botocore


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.slow)])
def storage(request, tmp_path):
    if request.param == "file":
        yield open_storage(f"file://{tmp_path}/store/", "lake/a", tmp_path / "local")
        return
    with serve_s3() as url:
        yield open_storage(url, "lake/a", tmp_path / "local")


def test_files_go_to_the_store_and_come_back(storage):
    folder = storage.folder / "trials" / "0000"
    (folder / "checkpoints").mkdir(parents=True)
    large, small = folder / "checkpoints" / "1.pkl.lz4", folder / "run.json"
    large.write_bytes(os.urandom(100_000))
    content = large.read_bytes()
    assert storage.find(folder) == []
    storage.upload(large)
    storage.write(small, b"{}")
    storage.write(small, b'{"a": 1}')
    storage.write(folder / ".owner", b"x")
    storage.write(folder.with_name("0000-2") / "run.json", b"{}")
    large.unlink()
    assert sorted(storage.find(folder)) == [large, small]
    storage.download(large)
    assert large.read_bytes() == content
    assert storage.read([small, folder / "no"]) == {small: b'{"a": 1}'}
    storage.remove([large, folder / "no"])
    assert storage.find(folder) == [small]
    assert [path.name for path in folder.iterdir()] == ["checkpoints"]


def test_a_check_leaves_no_file_and_finds_the_runs_of_another_study(storage):
    storage.check(is_new=True)
    assert storage.find(storage.folder) == []
    storage.write(storage.folder / "trials" / "0000" / "run.json", b"{}")
    storage.check(is_new=False)
    with pytest.raises(RlcliError, match="contains the runs of another study"):
        storage.check(is_new=True)


@pytest.mark.slow
def test_a_bucket_that_does_not_exist_is_an_error(tmp_path):
    with serve_s3() as url:
        storage = open_storage(url.replace("bucket", "missing"), "a", tmp_path)
        with pytest.raises(RlcliError, match=r"runs/a/.* cannot be written: "):
            storage.check(is_new=True)


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("/shared/runs", "`/shared/runs` is not a URL", "needs only `--runs`"),
        ("s33://bucket", "fsspec has no storage `s33://`", "did you mean `s3`?"),
        ("", "`` is not a URL", "s3://bucket/runs"),
        ("memory://a", "is the memory of a single process", "s3://bucket/runs"),
    ],
)
def test_what_is_no_store_is_refused(url, message, hint, tmp_path):
    with pytest.raises(RlcliError) as caught:
        open_storage(url, "a", tmp_path)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_the_error_names_the_package_of_a_store(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(RlcliError, match="`gs://` requires a package") as caught:
        open_storage("gs://bucket/runs", "a", tmp_path)
    assert caught.value.hint == 'pip install "gcsfs"'


def test_without_fsspec_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "rlcli.registry.libraries.missing_modules", lambda extra: ["fsspec"]
    )
    with pytest.raises(RlcliError, match="`--run-storage` requires `fsspec`") as caught:
        open_storage("s3://bucket/runs", "a", tmp_path)
    assert "pip install" in caught.value.hint


def test_a_store_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    storage = RunStorage(f"file://{tmp_path}/file/a", tmp_path)
    with pytest.raises(RlcliError, match="cannot be written: `") as caught:
        storage.check(is_new=True)
    assert caught.value.message.count("\n") == 0
    assert "credentials" in caught.value.hint


def test_errors_of_any_type_are_explained(tmp_path):
    storage = RunStorage(f"file://{tmp_path}", tmp_path)
    with (
        pytest.raises(RlcliError, match="/a` cannot be read: `KeyError`"),
        storage._access(tmp_path / "a", "read"),
    ):
        raise KeyError
