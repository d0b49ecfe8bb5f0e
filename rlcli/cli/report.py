"""Report: what is said after training, and the exit code that it comes to."""

from __future__ import annotations

import shlex
from pathlib import Path

from rlcli import errors
from rlcli.cli import output


def trained(folder: Path, *, quiet: bool) -> int:
    """Prints the run's folder and what to try next; the exit code of its status."""
    from rlcli.runs import Run  # here, for `--help` is to answer at once

    info = Run(folder).read_info()
    status = info.get("status", "failed")
    name = shlex.quote(str(folder))
    if status == "failed":
        output.tell("error: no seed is left: " + str(info.get("reason", "")))
    elif not quiet:
        verb = "eval" if errors.EXIT_CODES[status] == errors.OK else "resume"
        output.tell(f"next: rlcli {verb} {name}")
    output.data(folder)
    return errors.EXIT_CODES[status]
