"""Backend: whether to use the optimizations that are specific to a CPU.

These are fusion barriers, unrolled random bits, convolutions as matrix products, and
projections by a scatter. They are disabled on other backends. (`xla.threads` sets the
threads and vector widths of a CPU before JAX is imported.) Also here: accelerators
multiply as precisely as a CPU.
"""

import contextlib
from collections.abc import Iterator

import jax

_assumed: list[str] = []


def is_cpu() -> bool:
    """Whether programs are traced for a CPU; the default is JAX's backend."""
    return (_assumed[-1] if _assumed else jax.default_backend()) == "cpu"


def multiply_in_float32() -> None:
    """Makes GPUs and TPUs multiply float32 arrays in float32, as a CPU does.

    JAX's default there rounds the factors to 10 or 7 bits of their fraction. Entries of
    a table that a product reads, values and ratios of probabilities are then off by a
    thousandth. A precision that the user has chosen stays, by `jax.config` or by the
    environment variable `JAX_DEFAULT_MATMUL_PRECISION`.
    """
    name = "jax_default_matmul_precision"
    if jax.default_backend() != "cpu" and jax.config.values[name] is None:
        jax.config.update(name, "float32")


@contextlib.contextmanager
def assume_backend(platform: str) -> Iterator[None]:
    """Context in which programs are traced for `cpu`, `cuda`, `rocm` or `tpu`.

    Used to lower a program for another machine, and to measure the speedup of the
    optimizations for a CPU. Programs that are already traced do not change.
    """
    _assumed.append(platform)
    try:
        yield
    finally:
        _assumed.pop()
