"""Training outcome: the messages after training, and the exit code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlcli import errors
from rlcli.cli import output


def complete(function: Callable[..., Any], **keywords: Any) -> Any:
    """Calls a function of rlcli; its result also if a signal has stopped it.

    The command then reports it; the exit code is that of the status.
    """
    from rlcli.training.stopping import signals  # here, to keep `--help` fast

    try:
        with signals.own_process(output.data_descriptor()):
            return function(**keywords)
    except (KeyboardInterrupt, SystemExit) as stop:
        result = getattr(stop, "result", None)
        if result is None:  # nothing has begun
            raise
        return result


def report_training(folder: Path, *, quiet: bool) -> int:
    """Prints the run's folder and the next command; returns the exit code.

    Frozen seeds are reported even if `quiet`, because their results are not valid. Of
    several processes that train together, only the first one reports.
    """
    from rlcli.runs.run_folder import Run  # here, to keep `--help` fast
    from rlcli.xla import processes

    info = Run(folder).read_info()
    status = info.get("status", "failed")
    if not processes.is_first():
        return errors.EXIT_CODES[status]
    frozen, reason = info.get("frozen"), info.get("reason", "")
    hint = f"\n\nhint: {info['hint']}" if info.get("hint") else ""
    if status == "failed":
        output.print_message(f"error: {reason}{hint}")
    elif frozen:
        output.print_message(f"warning: {reason}{hint}")
    code = errors.EXIT_CODES[status]
    if status != "failed" and not quiet:
        verb = "eval" if code == errors.OK else "resume"
        output.print_message(f"next: {Run(folder).command(verb)}")
    output.print_data(folder)
    return errors.SOME_SEEDS_FROZEN if frozen and code == errors.OK else code
