"""XLA itself is the reference: it ends a process that has an unknown flag."""

import os
import subprocess
import sys

import platformdirs
import pytest

from rlcli.errors import RlcliError
from rlcli.xla import flags, threads


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """A new cache folder; returns the path of the file with the answers."""
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    return tmp_path / "rlcli" / "xla_flags.json"


@pytest.fixture
def library(monkeypatch, own_cache, tmp_path):
    """A library that knows `--xla_one` and `--xla_longer`."""
    path = tmp_path / "library.so"
    path.write_bytes(b"\x7fELF\0xla_one\0text of xla_two here\0xla_longer\0")
    monkeypatch.setattr(flags, "_jaxlib_library", lambda: path)
    return path


def xla_accepts(option: str) -> bool:
    """Whether a process with this option in `XLA_FLAGS` survives its first device."""
    result = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env=os.environ | {"XLA_FLAGS": option, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0 or "Unknown flag" in result.stderr, result.stderr
    return result.returncode == 0


@pytest.mark.parametrize(
    "option",
    [
        f"{threads.DEVICES_FLAG}=2",
        f"{threads.WIDTH_FLAG}=512",
        "--xla_cpu_use_fusion_emitters=false",  # until jaxlib 0.10
        "--xla_no_such_flag=1",
    ],
)
@pytest.mark.slow
def test_a_flag_is_known_if_xla_accepts_it(own_cache, option):
    assert flags.is_known_flag(option.split("=")[0]) == xla_accepts(option)


def test_a_name_within_another_text_is_not_a_flag(library):
    assert flags.is_known_flag("--xla_one")
    assert flags.is_known_flag("--xla_longer")
    for other in ("--xla_two", "--xla_long", "--xla_on", "--one"):
        assert not flags.is_known_flag(other)


def test_the_library_is_searched_once_for_each_version(monkeypatch, library):
    assert flags.is_known_flag("--xla_one") and not flags.is_known_flag("--xla_new")
    with monkeypatch.context() as patch:
        patch.delattr(flags, "_contains")
        assert flags.is_known_flag("--xla_one") and not flags.is_known_flag("--xla_new")
    library.write_bytes(b"another version\0xla_new\0")
    assert flags.is_known_flag("--xla_new") and not flags.is_known_flag("--xla_one")


def test_the_answers_about_other_libraries_are_kept(monkeypatch, library, tmp_path):
    assert flags.is_known_flag("--xla_one")
    other = tmp_path / "other.so"
    other.write_bytes(b"another environment\0xla_new\0")
    with monkeypatch.context() as patch:
        patch.setattr(flags, "_jaxlib_library", lambda: other)
        assert flags.is_known_flag("--xla_new") and not flags.is_known_flag("--xla_one")
    monkeypatch.delattr(flags, "_contains")
    assert flags.is_known_flag("--xla_one")


@pytest.mark.parametrize("content", ["", "[]", "{", '{"x": 1}', "null", "\0"])
def test_damaged_answers_are_asked_again(own_cache, library, content):
    own_cache.parent.mkdir()
    own_cache.write_text(content)
    assert flags.is_known_flag("--xla_one")
    assert str(library) in own_cache.read_text()


def test_no_flag_is_known_without_jaxlib(monkeypatch, own_cache):
    monkeypatch.setattr(flags, "_jaxlib_library", lambda: None)
    assert not flags.is_known_flag(threads.DEVICES_FLAG)


def test_an_unknown_flag_is_not_set(monkeypatch, library):
    for name in ("NPROC", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "has_accelerator", lambda: False)
    monkeypatch.setattr(threads, "_has_wide_vectors", lambda: True)
    layout = threads.Layout("one", 2)
    assert threads.environment_variables(layout) == {"NPROC": "1"}
    library.write_bytes(b"\0xla_cpu_prefer_vector_width\0")
    assert threads.environment_variables(layout)["XLA_FLAGS"] == (
        "--xla_cpu_prefer_vector_width=512"
    )


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--xla_no_such_flag=1", "Unknown flag in XLA_FLAGS"),
        ("--xla_cpu_prefer_vector_width=wide", "interpret value wide for flag"),
        ("no_such_file", "Could not open file"),
    ],
)
def test_flags_that_end_a_process_are_one_error(monkeypatch, own_cache, option, reason):
    monkeypatch.setenv("XLA_FLAGS", option)
    monkeypatch.setattr(threads, "has_used_devices", lambda: False)
    with pytest.raises(RlcliError, match=f"`XLA_FLAGS={option}`: .*{reason}"):
        threads.apply_layout(threads.Layout("one", 1))


def test_xla_is_asked_once_about_the_flags_of_a_user(monkeypatch, own_cache):
    monkeypatch.setenv("XLA_FLAGS", f"{threads.WIDTH_FLAG}=256")
    flags.require_known_flags()
    monkeypatch.delattr(flags, "_ask_xla")
    flags.require_known_flags()
    monkeypatch.delenv("XLA_FLAGS")
    flags.require_known_flags()
