import os
import subprocess
import sys

import pytest

CODE = """
import rlcli
rlcli.train("qlearning_frozenlake", smoke=True, quiet=True)
"""


def train_process(folder, **variables):
    environment = os.environ | {"XDG_CACHE_HOME": str(folder)} | variables
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"):
        environment.pop(name, None) if name not in variables else None
    subprocess.run(
        [sys.executable, "-c", CODE], cwd=folder, env=environment, check=True
    )


@pytest.mark.slow
def test_the_cache_uses_only_the_folder_of_the_user(tmp_path):
    cache_folder = tmp_path / "chosen"
    train_process(tmp_path, JAX_COMPILATION_CACHE_DIR=str(cache_folder))
    assert any(cache_folder.iterdir())
    assert not (tmp_path / "rlcli").exists()


def test_a_second_run_reads_the_cache(tmp_path):
    train_process(tmp_path)
    cached = {path.name for path in tmp_path.glob("rlcli/programs/*/*-cache")}
    assert cached
    train_process(tmp_path)
    again = {path.name for path in tmp_path.glob("rlcli/programs/*/*-cache")}
    assert cached <= again
    assert len(again - cached) < len(cached)  # what took just under the limit before
