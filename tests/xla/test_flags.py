"""XLA itself is the reference: it ends a process that has an unknown flag."""

import os
import subprocess
import sys

import pytest

from rlcli.xla import flags, threads


@pytest.fixture
def library(monkeypatch, tmp_path):
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
def test_a_flag_is_known_if_xla_accepts_it(option):
    assert flags.is_known_flag(option.split("=")[0]) == xla_accepts(option)


def test_a_name_within_another_text_is_not_a_flag(library):
    assert flags.is_known_flag("--xla_one")
    assert flags.is_known_flag("--xla_longer")
    for other in ("--xla_two", "--xla_long", "--xla_on", "--one"):
        assert not flags.is_known_flag(other)


def test_no_flag_is_known_without_jaxlib(monkeypatch):
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
