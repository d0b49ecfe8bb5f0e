"""Taps: intermediate values of a program, for who inspects it.

A part offers a value with `tap`. That costs nothing: the program contains it only if it
is traced within `collect_taps`. So a value inside of loops and of losses can be seen
without a result that every caller would have to pass on.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

import jax

from rlcli.types import ArrayTree

BATCH = "batch"  # the rows and weights of an update, as the updater gets them
GRADIENT_STEP = "gradient step"  # an `updaters.learner.GradientStepRecord`


class Tap(NamedTuple):
    """A value that a program has offered."""

    name: str
    value: ArrayTree  # of NumPy arrays


# Of `collect_taps` in this thread: others may train meanwhile.
_collected: ContextVar[list[Tap] | None] = ContextVar("taps", default=None)


def tap(name: str, make_value: Callable[[], ArrayTree]) -> None:
    """Offers the value of `make_value()`, each time when the program comes here.

    It is called only within `collect_taps`. Not under `vmap`.
    """
    if (taps := _collected.get()) is not None:
        add = functools.partial(_add, taps, name)
        jax.debug.callback(add, make_value(), ordered=True)


def _add(taps: list[Tap], name: str, value: ArrayTree) -> None:
    taps.append(Tap(name, jax.device_get(value)))


@contextlib.contextmanager
def collect_taps() -> Iterator[list[Tap]]:
    """Collects the values of programs that are traced and called here, in their order.

    `jax.effects_barrier()` waits for those of a program that was called.
    """
    taps: list[Tap] = []
    token = _collected.set(taps)
    try:
        yield taps
        jax.effects_barrier()
    finally:
        _collected.reset(token)
