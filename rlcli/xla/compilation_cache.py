"""Programs: what JAX compiled is kept for the next run. Imports no JAX.

Compiling takes longer than many a run; a program that was compiled once is read back in
a fraction of the time. Set `JAX_COMPILATION_CACHE_DIR` to keep it elsewhere, or
`JAX_ENABLE_COMPILATION_CACHE=false` to keep nothing.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path

import platformdirs

_MIN_COMPILE_SECONDS = 0.2  # seconds that a program took to compile


def enable_compilation_cache() -> None:
    """Sets JAX's variables for it, before JAX is imported; the user's own stay."""
    if "jax" in sys.modules:
        return
    for name, value in {
        "JAX_COMPILATION_CACHE_DIR": str(_cache_folder()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": str(_MIN_COMPILE_SECONDS),
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",  # however small
    }.items():
        os.environ.setdefault(name, value)


def _cache_folder() -> Path:
    """One for each kind of processor: programs are made for its instructions."""
    kind = hashlib.sha256(_processor_id().encode()).hexdigest()[:16]
    return platformdirs.user_cache_path("rlcli") / "programs" / kind


def _processor_id() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []  # elsewhere than on Linux its name has to do
    flags = [line for line in lines if line.startswith(("flags", "Features"))]
    return "\n".join([platform.machine(), platform.processor(), *flags[:1]])
