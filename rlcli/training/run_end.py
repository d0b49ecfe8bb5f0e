"""Run end: when and with which status runs end, and the end of their process."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Sequence

from rlcli import errors
from rlcli.errors import RlcliError, as_typed
from rlcli.quoting import printable
from rlcli.runs import run_folder
from rlcli.runs.run_folder import Run
from rlcli.training.run_writer import ActiveRun
from rlcli.training.signals import Signals, exit_now
from rlcli.training.stops import Stop
from rlcli.xla import processes

STOP_REACHED = "every seed has reached the return of `train.stop`"


def catch_signals(runs: Sequence[Run], *, is_resume: bool = False) -> Signals:
    """The signal handling of these runs; ends the process if it does not react in time.

    A resume that is ended before `run_chunks` does not change the runs.
    """
    if not is_resume:
        return Signals(functools.partial(abandon, runs), stop=stop_of(runs))
    folder = runs[0].folder
    text = (
        f"`{folder}` did not continue: it was stopped before its first step\n"
        "the run is unchanged: resume it again"
    )
    stop = Stop(folder, lambda: None, lambda: text)
    return Signals(functools.partial(_leave, runs), stop=stop)


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


def agreed_status(
    members: Sequence[ActiveRun], signals: Signals, deadline: float | None
) -> tuple[str, str]:
    """The final status of all processes: a signal to any of them stops all."""
    own, reason = final_status(members, signals, deadline)
    status = processes.agree(own, ["", *errors.EXIT_CODES])
    step = members[0].experiment.step
    return status, reason if own == status else f"at step {step:,}"


def final_status(
    members: Sequence[ActiveRun], signals: Signals, deadline: float | None
) -> tuple[str, str]:
    """The status with which runs end now, and the reason; "" if they continue."""
    experiments = [member.experiment for member in members]
    first = experiments[0]
    if all(each.failure for each in experiments):
        return "failed", first.failure
    if all(each.has_reached_stop for each in experiments if not each.failure):
        return "stopped", STOP_REACHED
    if first.is_finished:
        return "finished", ""
    if signals.status:
        return signals.status, f"at step {first.step:,}"
    if deadline is not None and time.monotonic() >= deadline:
        return "out_of_time", f"at step {first.step:,}"
    return "", ""
