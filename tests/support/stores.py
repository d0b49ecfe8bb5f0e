"""Stores for the runs of sweeps: a folder, an S3 server, and one that fails."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from rlcli.errors import RlcliError
from rlcli.studies.engines.run_storage import RunStorage


@contextmanager
def serve_s3() -> Iterator[str]:
    """The URL of a bucket on a server of this process; skips without moto or s3fs."""
    server = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    running = server.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()  # of another server
        bucket = f"bucket-{secrets.token_hex(4)}"  # the server keeps those of others
        s3fs.S3FileSystem().mkdir(bucket)
        yield f"s3://{bucket}/runs"
        s3fs.S3FileSystem.clear_instance_cache()
    running.stop()


class FailingStorage(RunStorage):
    """Fails after `left` changes, as if the node were lost in the middle of a copy."""

    left: ClassVar[int] = 10**9

    def write(self, path: Path, data: bytes) -> None:
        self._count()
        super().write(path, data)

    def upload(self, path: Path) -> None:
        self._count()
        super().upload(path)

    def remove(self, paths) -> None:
        for path in paths:
            self._count()
            super().remove([path])

    @staticmethod
    def _count() -> None:
        if FailingStorage.left <= 0:
            raise RlcliError("the store has failed")
        FailingStorage.left -= 1


def list_bytes(folder: Path, pattern: str = "**/*") -> dict[str, bytes]:
    """The contents of all files below a folder that match a pattern."""
    return {
        os.path.relpath(path, folder): path.read_bytes()
        for path in folder.glob(pattern)
        if path.is_file()
    }
