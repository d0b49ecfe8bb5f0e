"""`rlcli resume`: continues a run exactly where it stopped."""

from pathlib import Path

import typer

import rlcli
from rlcli.cli import options, study_screen, training_outcome


def command(
    run: Path = options.RUN_FOLDER,
    set: list[str] = options.SET,
    jobs: int | None = options.JOBS,
    max_time: str | None = options.MAX_TIME,
    quiet: bool = options.QUIET,
    trust: bool | None = options.TRUST,
    coordinator: str | None = options.COORDINATOR,
    process: str | None = options.PROCESS,
) -> None:
    """Continue a run exactly where it stopped.

    In the folder of a study, continues every run that has not finished, and begins
    those that have not begun; in that of a sweep, continues the search. `--set` can
    only change `train.steps`, `train.stop`, `train.log`, `train.evaluate`,
    `train.checkpoint`, `train.trackers`, `train.devices`, `train.data_parallel` and
    `train.on_error`.
    """
    from rlcli.cli import sweep_screen  # here, to keep `--help` fast
    from rlcli.runs.study_record import SEARCH, find_study

    limit = options.parse_deadline(max_time)
    sets = tuple(set)
    run_path = options.choose_run(run, quiet=quiet, keep_study=True)
    if study := find_study(run_path):
        for flag, value in (("--coordinator", coordinator), ("--process", process)):
            if value is not None:
                message = "is for a single run, not for a study"
                raise typer.BadParameter(message, param_hint=flag)
        keywords = {"jobs": jobs, "max_time": limit, "quiet": quiet, "trust": trust}
        if SEARCH in study.sections:
            code = sweep_screen.run_sweep(run_path, set=sets, resume=True, **keywords)
        else:
            keywords |= {"set": sets}
            code = study_screen.train_and_report(rlcli.study, run_path, **keywords)
        raise typer.Exit(code)
    folder = training_outcome.complete(
        rlcli.resume,
        run_path,
        set=sets,
        max_time=limit,
        quiet=quiet,
        trust=trust,
        coordinator=coordinator,
        process=process,
    )
    raise typer.Exit(training_outcome.report_training(folder, quiet=quiet))
