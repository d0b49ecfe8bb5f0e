"""`rlcli resume`: continues a run exactly where it stopped."""

from pathlib import Path
from typing import Any

import typer

import rlcli
from rlcli.cli import options, study_screen, training_outcome


@options.with_engines
def command(
    run: Path = options.RUN_FOLDER,
    set: list[str] = options.SET,
    max_time: str | None = options.MAX_TIME,
    quiet: bool = options.QUIET,
    trust: bool | None = options.TRUST,
    coordinator: str | None = options.COORDINATOR,
    process: str | None = options.PROCESS,
    **engines: Any,
) -> None:
    """Continue a run exactly where it stopped.

    In the folder of a study, continues every run that has not finished, and begins
    those that have not begun; in that of a sweep, continues the search; in that of
    `rlcli bsuite`, scores the runs again. `--set` can only change `train.steps`,
    `train.stop`, `train.log`, `train.evaluate`, `train.checkpoint`, `train.trackers`,
    `train.devices`, `train.data_parallel` and `train.on_error`.
    """
    from rlcli.cli import bsuite, sweep_screen  # here, to keep `--help` fast
    from rlcli.runs.study_record import BSUITE, SEARCH, find_study

    run_path = options.choose_run(run, quiet=quiet, keep_study=True)
    if study := find_study(run_path):
        message = "is for a single run, not for a study"
        options.refuse(message, ["coordinator", "process"])
        limit = options.parse_deadline(max_time, engines["engine"])
        keywords = {"max_time": limit, "quiet": quiet, "trust": trust, **engines}
        keywords |= {"set": set, "recipe": run_path, "resume": True}
        if SEARCH in study.sections:
            code = sweep_screen.run_sweep(**keywords)
        elif BSUITE in study.sections:
            code = bsuite.train_and_score(**keywords)
        else:
            keywords = options.select(rlcli.study, keywords, study=run_path)
            code = study_screen.train_and_report(**keywords)
        raise typer.Exit(code)
    options.refuse_engines()
    keywords = options.select(rlcli.resume, locals(), run=run_path)
    folder = training_outcome.complete(rlcli.resume, **keywords)
    raise typer.Exit(training_outcome.report_training(folder, quiet=quiet))
