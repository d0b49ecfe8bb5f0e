import os
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from rlcli.xla.compilation_cache import cache_folder, enable_compilation_cache

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
    assert not (tmp_path / "rlcli" / "programs").exists()


@pytest.mark.slow
def test_a_second_run_reads_the_cache(tmp_path):
    train_process(tmp_path)
    cached = {path.name for path in tmp_path.glob("rlcli/programs/*/*-cache")}
    assert cached
    train_process(tmp_path)
    again = {path.name for path in tmp_path.glob("rlcli/programs/*/*-cache")}
    assert cached <= again
    assert len(again - cached) < len(cached)  # what took just under the limit before


VARIABLES = (
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES",
)


@pytest.fixture
def without_settings(monkeypatch, tmp_path):
    """A process that has neither set JAX's variables nor imported JAX."""
    for name in VARIABLES:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    return monkeypatch


def test_programs_that_take_long_to_compile_are_stored_for_the_user(
    without_settings, tmp_path
):
    enable_compilation_cache()
    folder, seconds, size = (os.environ[name] for name in VARIABLES)
    assert folder == str(cache_folder())
    assert cache_folder().parent == tmp_path / "rlcli" / "programs"
    assert (float(seconds), size) == (0.2, "-1")


def test_what_the_user_has_set_stays(without_settings):
    without_settings.setenv(VARIABLES[0], "chosen")
    enable_compilation_cache()
    # Absolute, because an environment may enter another folder.
    assert os.environ[VARIABLES[0]] == str(cache_folder()) == str(Path.cwd() / "chosen")


def test_once_jax_is_imported_nothing_is_set(without_settings):
    without_settings.setitem(sys.modules, "jax", os)
    enable_compilation_cache()
    assert VARIABLES[0] not in os.environ
