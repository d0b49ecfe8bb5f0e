"""Rows of tracers, compiled: one program instead of one per operation."""

import jax


def trace(tracer, steps, estimates):
    """The rows of a tracer as NumPy arrays."""
    return jax.device_get(jax.jit(tracer.trace)(steps, estimates))
