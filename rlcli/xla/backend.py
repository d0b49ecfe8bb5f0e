"""Backend: the switch of all optimizations that are specific to a CPU.

Fusion barriers, unrolled random bits, convolutions as matrix products and projections
by a scatter are faster on a CPU, and off elsewhere. (`xla.threads` chooses threads and
vector widths for a CPU before JAX is imported.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

_assumed: list[str] = []


def is_cpu() -> bool:
    """Whether programs are traced for a CPU: by default, if that is JAX's backend."""
    return (_assumed[-1] if _assumed else jax.default_backend()) == "cpu"


@contextlib.contextmanager
def assume_backend(platform: str) -> Iterator[None]:
    """Programs traced inside are for `platform`: `cpu`, `cuda`, `rocm` or `tpu`.

    For lowering a program for another machine, and for measuring the speedup of the
    optimizations for a CPU. Programs that are already traced do not change.
    """
    _assumed.append(platform)
    try:
        yield
    finally:
        _assumed.pop()
