"""`rlcli sweep`: tunes hyperparameters, and shows and exports sweeps."""

from pathlib import Path

import typer

import rlcli
from rlcli.cli import completion, options, output, training_outcome
from rlcli.cli.options import argument, option
from rlcli.errors import EXIT_CODES

_VERBS = {
    "show": ("FOLDER",),
    "export": ("FOLDER", "FILE.yaml"),
    "train": ("FILE", "RECIPE"),  # of the processes that a sweep starts
}


def command(
    words: list[str] = argument(
        "RECIPE | show FOLDER | export FOLDER FILE",
        "The recipe to tune, by file or name; with `--resume` also the folder "
        "of a sweep. `show` prints the results of a sweep, `export` writes the "
        "winner's recipe.",
        complete=completion.complete_sweep,
    ),
    space: Path | None = option(
        None,
        "--space FILE",
        "A YAML file with the search space: `optimizer.learning_rate: "
        "{log_uniform: [1e-5, 1e-2]}`; also `uniform`, `int`, `choice`.",
    ),
    trials: int | None = option(
        None,
        "--trials N",
        "Number of trials. Default: 50, all combinations of a grid, or 20 of `pbt`.",
        min=1,
    ),
    seeds: int | None = option(
        None, "--seeds N", "Seeds of each trial. Default: 5.", min=1
    ),
    seed: int | None = option(
        None,
        "--seed N",
        "The first seed of a trial, and the seed of the sampler.",
        min=0,
        max=options.MAX_SEED,
    ),
    sampler: str | None = option(
        None,
        "--sampler NAME",
        "`tpe` (default), `random`, `grid`, `cmaes`, `nsga2`, or `pbt`: "
        "population-based training.",
        words=("tpe", "random", "grid", "cmaes", "nsga2", "pbt"),
    ),
    pruner: str | None = option(
        None,
        "--pruner NAME",
        "How to stop bad trials early: `asha` (default), `median` or `none`.",
        words=("asha", "median", "none"),
    ),
    objective: str | None = option(
        None,
        "--objective NAME",
        "Compare trials by the IQM over seeds of the last `return` (default) or "
        "`evaluation.success`, `auc` (area under the learning curve) or `steps_to:475` "
        "(steps until this return).",
        words=("return", "auc", "steps_to:", "evaluation.success"),
    ),
    confirm: int | None = option(
        None,
        "--confirm N",
        "Train the N best trials again with other seeds. Default: 3.",
        min=0,
    ),
    confirm_seeds: int | None = option(
        None,
        "--confirm-seeds N",
        "Seeds of each confirmation run. Default: as in a trial.",
        min=1,
    ),
    together: int | None = option(
        None,
        "--together N",
        "Begin N trials at once; those of equal structure are one program. "
        "Default: by the sampler and `--jobs`.",
        min=1,
    ),
    ready: int | None = option(
        None,
        "--ready N",
        "`pbt`: the worst members copy the best ones after every N "
        "evaluations. Default: 1.",
        min=1,
    ),
    set: list[str] = options.SET,
    init: Path | None = options.INIT,
    jobs: int | None = options.JOBS,
    engine: str = option(
        "local",
        "--engine NAME",
        "Where trials run: `local` (this machine) or `ray` (a Ray cluster).",
        words=("local", "ray"),
    ),
    address: str | None = option(
        None,
        "--address ADDRESS",
        "The Ray cluster: `auto`, `ray://HOST:PORT`. Default: this machine.",
    ),
    cpus: float = option(1.0, "--cpus N", "CPUs of a process, with Ray.", min=0),
    gpus: float = option(0.0, "--gpus N", "GPUs of a process, with Ray.", min=0),
    storage: str | None = option(
        None,
        "--storage URL",
        "A database for Optuna, such as `sqlite:///sweeps.db`, instead of a "
        "journal file in the folder. Also with `--resume` and `show`.",
    ),
    run_storage: str | None = option(
        None,
        "--run-storage URL",
        "An object store for the runs, such as `s3://bucket/runs`, with Ray "
        "on nodes that share no folder. Also with `--resume`.",
    ),
    runs: Path = option(
        Path("runs"), "--runs DIR", "Create the sweep below DIR/sweeps/<recipe>."
    ),
    run: Path | None = options.SWEEP_RUN,
    name: str | None = options.SWEEP_NAME,
    resume: bool = option(
        False,
        "--resume",
        "Continue a sweep, given by its folder, `--run` or `--name`, or the "
        "newest one.",
    ),
    slurm: Path | None = option(
        None,
        "--slurm FILE",
        "Write a SLURM job-array script with one task per trial, and train nothing.",
    ),
    trust: bool | None = option(
        None,
        "--trust/--no-trust",
        "With `--resume` and `export`: allow the recipe of the sweep to "
        "import code outside rlcli, and its trackers to contact a host.",
    ),
    max_time: str | None = options.MAX_TIME,
    trial: int | None = option(
        None,
        "--trial N",
        "With `export`: export this trial instead of the winner. With "
        "`--resume`: train only this trial, as a job-array task does.",
        min=0,
    ),
    quiet: bool = options.QUIET,
    json: bool = options.JSON,
) -> None:
    """Tune hyperparameters, and confirm the best trials.

    Each trial is a run with several seeds and other values of the recipe's options. The
    best trials are trained again with other seeds, and the best of these wins.
    `--resume` continues a sweep that was stopped.
    """
    from rlcli.cli import sweep_screen  # here, to keep `--help` fast

    verb, *rest = words
    if verb in _VERBS and (rest or not Path(verb).exists()):
        _check_words(verb, rest)
        if verb == "train":
            raise typer.Exit(_train_group(*rest, trust=trust))
        if verb == "export":
            file = rlcli.export_sweep(rest[0], rest[1], trial=trial, trust=trust)
            output.print_data(file)
        else:
            data = rlcli.show_sweep(rest[0], storage=storage)
            sweep_screen.print_sweep(data, json=json)
        return
    if rest:
        raise typer.BadParameter("expected a single recipe", param_hint="RECIPE")
    if trial is not None:
        if not resume:
            raise typer.BadParameter(
                "requires `export` or `--resume`", param_hint="--trial"
            )
        from rlcli.studies.engines.slurm import train_trial

        limit = options.parse_max_time(max_time)
        status = train_trial(verb, trial, max_time=limit, trust=trust)
        raise typer.Exit(EXIT_CODES[status])
    from rlcli.recipe import init_settings

    with sweep_screen.show_progress(quiet) as report:
        folder = training_outcome.complete(
            rlcli.sweep,
            verb,
            space=space,
            trials=trials,
            seeds=seeds,
            seed=seed,
            sampler=sampler,
            pruner=pruner,
            objective=objective,
            confirm=confirm,
            confirm_seeds=confirm_seeds,
            together=together,
            ready=ready,
            set=(*set, *init_settings(init)),
            jobs=jobs,
            engine=engine,
            address=address,
            cpus=cpus,
            gpus=gpus,
            max_time=options.parse_max_time(max_time),
            storage=storage,
            run_storage=run_storage,
            runs=runs,
            run=run,
            name=name,
            resume=resume,
            trust=trust,
            slurm=slurm,
            report=report,
        )
    addresses = {"--storage": storage, "--run-storage": run_storage}
    is_trusted = trust or not resume
    if slurm is not None:
        code = sweep_screen.report_script(
            folder, slurm, quiet=quiet, trust=is_trusted, addresses=addresses
        )
        raise typer.Exit(code)
    raise typer.Exit(
        sweep_screen.report_end(
            folder, quiet=quiet, json=json, trust=is_trusted, addresses=addresses
        )
    )


def _train_group(file: str, recipe: str, *, trust: bool | None) -> int:
    from rlcli.studies.search import grouping  # here, to keep `--help` fast

    return training_outcome.complete(grouping.train_group, file, recipe, trust=trust)


def _check_words(verb: str, rest: list[str]) -> None:
    """Refuses a number of words that the verb does not have."""
    expected = _VERBS[verb]
    if len(rest) != len(expected):
        usage = " ".join((f"rlcli sweep {verb}", *expected))
        raise typer.BadParameter(f"expected `{usage}`", param_hint=verb)
