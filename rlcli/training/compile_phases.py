"""Compile phases: reports when JAX traces and compiles, from the events of JAX."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import jax.monitoring

TRACING, COMPILING, RUNNING = "tracing", "compiling", "running"
# What begins when JAX reports the end of a step.
_NEXT: Mapping[str, str] = MappingProxyType(
    {
        "/jax/core/compile/jaxpr_trace_duration": TRACING,  # an inner function
        "/jax/core/compile/jaxpr_to_mlir_module_duration": COMPILING,
        "/jax/core/compile/backend_compile_duration": RUNNING,
    }
)


@contextlib.contextmanager
def report_compilation(report: Callable[[str], None]) -> Iterator[None]:
    """Context in which `report` is called with each phase of JAX's compilation."""

    def listen(event: str, duration_secs: float, **_: object) -> None:
        del duration_secs
        if event in _NEXT:
            report(_NEXT[event])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
