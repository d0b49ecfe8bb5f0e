"""Session: the program's monitor, deadline, locks and signals while it trains runs.

Train, resume, reproduce and `verify-resume`, of one run or of several that share a
program, open it alike; `run_loop` trains in it. Imports JAX when tracing begins.
"""

import atexit
import contextlib
import dataclasses
import inspect
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.monitor import Monitor
from rlcli.runs.durations import Deadline, deadline_of
from rlcli.runs.files import explain_file_errors
from rlcli.runs.run_folder import Run
from rlcli.training.stopping.run_end import catch_signals
from rlcli.training.stopping.signals import Signals
from rlcli.xla import processes
from rlcli.xla.processes import ProcessGroup

TRACING, COMPILING, RUNNING = "tracing", "compiling", "running"
# What begins when JAX reports the end of a step.
_NEXT: Mapping[str, str] = {
    "/jax/core/compile/jaxpr_trace_duration": TRACING,  # an inner function
    "/jax/core/compile/jaxpr_to_mlir_module_duration": COMPILING,
    "/jax/core/compile/backend_compile_duration": RUNNING,
}

CTRL_C = "Ctrl-C stops"  # before the run begins, there is nothing to save


@dataclasses.dataclass
class Session:
    """What runs of one program have in common while they train; see `open_session`."""

    monitor: Monitor
    deadline: Deadline | None
    warning: str = ""  # that the threads could not be set
    _stack: contextlib.ExitStack = dataclasses.field(
        default_factory=contextlib.ExitStack
    )

    def begin_tracing(self, warning: str, group: ProcessGroup) -> None:
        """Imports JAX, connects to the other processes, and reports its phases.

        The threads have been set, with this `warning` if it was too late.
        """
        self.warning = warning
        processes.join(group)
        self.monitor.set_phase(TRACING)
        self._stack.enter_context(report_compilation(self.monitor.set_phase))

    def hold(self, runs: Sequence[Run], *, is_resume: bool = False) -> None:
        """Locks runs, and handles signals for them, until the session ends."""
        for run in runs:
            self._stack.enter_context(run.lock())
        signals = catch_signals(runs, is_resume=is_resume)
        self.signals: Signals = self._stack.enter_context(signals)


@contextlib.contextmanager
def open_session(
    title: str, *, max_time: str | float | None, quiet: bool
) -> Iterator[Session]:
    """A session, which ends with this context; `title` is shown in the terminal."""
    deadline = deadline_of(max_time)
    with (
        explain_file_errors(),
        Monitor(title=title, quiet=quiet, hint=CTRL_C) as monitor,
        contextlib.ExitStack() as stack,
    ):
        monitor.set_phase("loading JAX")
        yield Session(monitor, deadline, _stack=stack)


@contextlib.contextmanager
def report_compilation(report: Callable[[str], None]) -> Iterator[None]:
    """Context in which `report` is called with each phase of JAX's compilation."""
    import jax.monitoring

    def listen(event: str, duration_secs: float, **_: object) -> None:
        if event in _NEXT:
            report(_NEXT[event])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


_unfinished: weakref.WeakSet[Generator[Any, None, Path]] = weakref.WeakSet()


def close_at_exit(generator: Generator[Any, None, Path]) -> None:
    """Ends the run of a generator, with a checkpoint, when the interpreter exits."""
    _unfinished.add(generator)


def register_closing() -> None:
    """Ends the runs of unfinished generators before JAX shuts down.

    Call it once JAX has registered its exit functions: the interpreter calls them in
    reverse order.
    """
    atexit.unregister(_close_unfinished)
    atexit.register(_close_unfinished)


def _close_unfinished() -> None:
    with contextlib.ExitStack() as stack:  # closes the others if one of them fails
        for generator in _unfinished:
            state = inspect.getgeneratorstate(generator)
            if state != inspect.GEN_RUNNING:  # else a thread runs it
                stack.callback(generator.close)
