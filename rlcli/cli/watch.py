"""`rlcli watch`: shows the panel of a run that another process trains."""

from pathlib import Path

import rlcli
from rlcli import errors
from rlcli.cli import options, output, study_screen


def command(run: Path = options.RUN_FOLDER, json: bool = options.JSON) -> None:
    """Show the progress of a run, or a study, in another process.

    Ends with the run, or when the study is complete or was stopped. Only reads the
    files: Ctrl-C does not stop the run.
    """
    from rlcli.runs.run_folder import Run  # here, to keep `--help` fast
    from rlcli.runs.study_record import find_study

    try:
        if find_study(run):
            cells = study_screen.watch_study(run)
            if json:
                output.print_json({"cells": cells})
            return
        record = rlcli.watch(options.choose_run(run))
    except KeyboardInterrupt:
        output.print_message("the run continues")
        return
    if json:
        output.print_json(record)
    status = record["status"]
    reason = f": {record['reason']}" if record["reason"] else ""
    output.print_message(f"{status}{reason}")
    if status not in ("failed", "broken"):
        verb = "eval" if errors.EXIT_CODES.get(status) == errors.OK else "resume"
        output.print_message(
            f"next: {Run(Path(record['run'])).command(verb, trust=False)}"
        )
