"""Run end: how signals end runs, and what happens to a run that does not react."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from rlcli import errors
from rlcli.errors import RlcliError, as_typed
from rlcli.quoting import printable
from rlcli.runs import run_folder
from rlcli.runs.run_folder import Run
from rlcli.training.stopping.signals import Signals, exit_now
from rlcli.training.stopping.stops import Stop


def catch_signals(runs: Sequence[Run], *, is_resume: bool = False) -> Signals:
    """The signal handling of these runs; ends the process if it does not react in time.

    A resume that is ended before `run_chunks` does not change the runs.
    """
    if not is_resume:
        end, stop = abandon, stop_of(runs)
    else:
        folder = runs[0].folder
        text = (
            f"`{folder}` did not continue: it was stopped before its first step\n"
            "the run is unchanged: resume it again"
        )
        end, stop = _leave, Stop(folder, lambda: None, lambda: text)
    return Signals(functools.partial(end, runs), stop=stop)


def stop_of(runs: Sequence[Run]) -> Stop:
    """What runs that have begun leave behind when a signal stops them."""

    def describe() -> str:
        info = runs[0].read_info()
        reason = f" {info['reason']}" if info.get("reason") else ""
        ended = info["status"] if info.get("ended") else "its process was stopped"
        hint = f"`{runs[0].command('resume')}` continues it"
        return f"`{runs[0].folder}`: {ended}{reason}; {hint}"

    folder = runs[0].folder
    return Stop(folder, lambda: folder, describe)


def _leave(runs: Sequence[Run], status: str) -> None:
    """Ends the process before it has changed the runs."""
    exit_now(
        errors.EXIT_CODES[status],
        message="stopped immediately; the run is unchanged",
        data=_paths(runs),
    )


def abandon(runs: Sequence[Run], status: str) -> None:
    """Ends the process while it computes; resume continues at the last checkpoint.

    A run that has ended, and only waits for its trackers, keeps its final status.
    """
    latest = runs[0].latest_checkpoint()
    state = f"saved in `{latest.name}`" if latest else "not saved: resume starts over"
    message = f"stopped immediately; the run is {state}"
    message += f"\nnext: {runs[0].command('resume')}"
    with contextlib.suppress(RlcliError):
        running = [each for each in runs if not each.read_info().get("ended")]
        if not running:
            status = runs[0].read_info()["status"]
            message = f"stopped waiting for the trackers; the run has ended: {status}"
        for each in running:
            reason = "ended immediately, between two checkpoints"
            each.write_info(status=status, reason=reason, ended=run_folder.timestamp())
    exit_now(errors.EXIT_CODES[status], message=printable(message), data=_paths(runs))


def _paths(runs: Sequence[Run]) -> str:
    return "\n".join(printable(as_typed(str(each.folder))) for each in runs)


_IDLE = 0.01  # of one core: less processor time counts as idle


@contextlib.contextmanager
def report_idling(
    report: Callable[[str], None], patience: float = 60.0
) -> Iterator[None]:
    """Context that checks every `patience` seconds whether processor time is used.

    XLA's threads can deadlock; the process then uses no processor time. Work on
    an accelerator needs no processor time either.
    """
    stop = threading.Event()

    def watch() -> None:
        time_before = time.process_time()
        while not stop.wait(patience):
            now = time.process_time()
            if now - time_before < _IDLE * patience:
                report(
                    f"the run has been idle for {patience:.0f} s: XLA's threads may be "
                    "deadlocked. Stop with Ctrl-C twice, then continue with "
                    "`NPROC=1 rlcli resume`"
                )
            time_before = now

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
