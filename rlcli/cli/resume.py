"""`rlcli resume`: continues a run exactly where it stopped."""

from pathlib import Path

import typer

import rlcli
from rlcli.cli import batch, options, training_outcome


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

    In a folder of variants, continues every run that has not finished. `--set` can only
    change `train.steps`, `train.stop`, `train.log`, `train.evaluate`,
    `train.checkpoint`, `train.trackers`, `train.devices`, `train.data_parallel` and
    `train.on_error`.
    """
    from rlcli.runs.variants import find_variants  # here, to keep `--help` fast

    limit = options.parse_deadline(max_time)
    sets = tuple(set)
    run_path = options.choose_run(run, quiet=quiet, keep_variants=True)
    if find_variants(run_path):
        for flag, value in (("--coordinator", coordinator), ("--process", process)):
            if value is not None:
                message = "is for a single run, not for runs with varied options"
                raise typer.BadParameter(message, param_hint=flag)
        code = batch.resume_and_report(
            run_path, jobs=jobs, set=sets, max_time=limit, quiet=quiet, trust=trust
        )
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
