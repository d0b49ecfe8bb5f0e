"""Compiler options for programs whose tests spend most of their time compiling."""

from __future__ import annotations

import os

from rlcli.xla import flags

# What `JAX_DISABLE_MOST_OPTIMIZATIONS` sets, here also for slow tests.
FAST_COMPILATION = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
# Compiling takes longer than running. XLA's former code generator is twice as fast.
_FLAGS = (
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)


def cache_programs(folder: str) -> None:
    """Stores every program in a folder, also for processes that are started later."""
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def disable_optimization() -> None:
    """Makes XLA compile quickly; comes before JAX is imported.

    Does not repeat a flag, because JAX's cache would not find the programs of a process
    with other flags.
    """
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
    present = os.environ.get("XLA_FLAGS", "").split()
    missing = [
        option
        for option in _FLAGS
        if option not in present and flags.is_known_flag(option.split("=")[0])
    ]
    os.environ["XLA_FLAGS"] = " ".join([*missing, *present])
