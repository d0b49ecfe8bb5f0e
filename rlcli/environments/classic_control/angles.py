"""Angles: what the environments with joints share."""

from __future__ import annotations

import math

import jax.numpy as jnp

from rlcli.types import Array


def wrapped(angle: Array) -> Array:
    """The same angle in [−π, π], in radians: x − 2π ⌊x / 2π⌉."""
    return angle - math.tau * jnp.round(angle / math.tau)
