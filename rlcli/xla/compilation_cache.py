"""Compilation cache: stores compiled programs for later runs. Does not import JAX.

Compiling often takes longer than a run. Reading a program from the cache takes a
fraction of that time. Set `JAX_COMPILATION_CACHE_DIR` to use another folder, or
`JAX_ENABLE_COMPILATION_CACHE=false` to disable the cache.
"""

import hashlib
import os
import platform
import sys
from pathlib import Path

import platformdirs

_MIN_COMPILE_SECONDS = 0.2  # faster compilations are not stored


def enable_compilation_cache() -> None:
    """Sets JAX's variables for the cache, except those that the user has set.

    Has no effect once JAX is imported.
    """
    if "jax" in sys.modules:
        return
    for name, value in {
        "JAX_COMPILATION_CACHE_DIR": str(_default_folder()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": str(_MIN_COMPILE_SECONDS),
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",  # no minimum
    }.items():
        os.environ.setdefault(name, value)
    # JAX opens it when it compiles: perhaps in another working directory.
    folder = os.environ["JAX_COMPILATION_CACHE_DIR"]
    if folder and "://" not in folder:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(folder).absolute())


def cache_folder() -> Path:
    """The folder of the compiled programs."""
    return Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or _default_folder())


def _default_folder() -> Path:
    """The folder for this kind of CPU: programs use its instruction set."""
    kind = hashlib.sha256(_processor_id().encode()).hexdigest()[:16]
    return platformdirs.user_cache_path("rlcli") / "programs" / kind


def _processor_id() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []  # not Linux: only the name of the processor
    flags = [line for line in lines if line.startswith(("flags", "Features"))]
    return "\n".join([platform.machine(), platform.processor(), *flags[:1]])
