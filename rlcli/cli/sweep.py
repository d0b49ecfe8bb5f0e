"""`rlcli sweep`: tunes hyperparameters, and shows and exports sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import completion, options, output, training_outcome
from rlcli.cli.options import Jobs, Json, MaxTime, Quiet, Set, SweepName, SweepRun
from rlcli.errors import EXIT_CODES

_VERBS = {
    "show": ("FOLDER",),
    "export": ("FOLDER", "FILE.yaml"),
    "train": ("FILE", "RECIPE"),  # of the processes that a sweep starts
}


def command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE | show FOLDER | export FOLDER FILE",
            autocompletion=completion.complete_sweep,
            help="The recipe to tune, by file or name; with `--resume` also the folder "
            "of a sweep. `show` prints the results of a sweep, `export` writes the "
            "winner's recipe.",
            show_default=False,
        ),
    ],
    space: Annotated[
        Path | None,
        typer.Option(
            "--space",
            metavar="FILE",
            help="A YAML file with the search space: `optimizer.learning_rate: "
            "{log_uniform: [1e-5, 1e-2]}`; also `uniform`, `int`, `choice`.",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            min=1,
            metavar="N",
            help="Number of trials. Default: 50, all combinations of a grid, or 20 of "
            "`pbt`.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            metavar="N",
            help="Seeds of each trial. Default: 5.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            max=options.MAX_SEED,
            metavar="N",
            help="The first seed of a trial, and the seed of the sampler.",
            show_default=False,
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            "--sampler",
            metavar="NAME",
            autocompletion=completion.complete_word(
                "tpe", "random", "grid", "cmaes", "nsga2", "pbt"
            ),
            help="`tpe` (default), `random`, `grid`, `cmaes`, `nsga2`, or `pbt`: "
            "population-based training.",
            show_default=False,
        ),
    ] = None,
    pruner: Annotated[
        str | None,
        typer.Option(
            "--pruner",
            metavar="NAME",
            autocompletion=completion.complete_word("asha", "median", "none"),
            help="How to stop bad trials early: `asha` (default), `median` or `none`.",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            metavar="NAME",
            autocompletion=completion.complete_word("return", "auc", "steps_to:"),
            help="Compare trials by the IQM over seeds of the last `return` (default), "
            "`auc` (area under the learning curve) or `steps_to:475` (steps until this "
            "return).",
            show_default=False,
        ),
    ] = None,
    confirm: Annotated[
        int | None,
        typer.Option(
            "--confirm",
            min=0,
            metavar="N",
            help="Train the N best trials again with other seeds. Default: 3.",
            show_default=False,
        ),
    ] = None,
    confirm_seeds: Annotated[
        int | None,
        typer.Option(
            "--confirm-seeds",
            min=1,
            metavar="N",
            help="Seeds of each confirmation run. Default: as in a trial.",
            show_default=False,
        ),
    ] = None,
    together: Annotated[
        int | None,
        typer.Option(
            "--together",
            min=1,
            metavar="N",
            help="Begin N trials at once; those of equal structure are one program. "
            "Default: by the sampler and `--jobs`.",
            show_default=False,
        ),
    ] = None,
    ready: Annotated[
        int | None,
        typer.Option(
            "--ready",
            min=1,
            metavar="N",
            help="`pbt`: the worst members copy the best ones after every N "
            "evaluations. Default: 1.",
            show_default=False,
        ),
    ] = None,
    set: Set = [],  # noqa: B006 - Typer copies it, and supports no other empty default
    jobs: Jobs = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME",
            autocompletion=completion.complete_word("local", "ray"),
            help="Where trials run: `local` (this machine) or `ray` (a Ray cluster).",
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="ADDRESS",
            help="The Ray cluster: `auto`, `ray://HOST:PORT`. Default: this machine.",
            show_default=False,
        ),
    ] = None,
    cpus: Annotated[
        float,
        typer.Option("--cpus", min=0, metavar="N", help="CPUs of a process, with Ray."),
    ] = 1.0,
    gpus: Annotated[
        float,
        typer.Option("--gpus", min=0, metavar="N", help="GPUs of a process, with Ray."),
    ] = 0.0,
    storage: Annotated[
        str | None,
        typer.Option(
            "--storage",
            metavar="URL",
            help="A database for Optuna, such as `sqlite:///sweeps.db`, instead of a "
            "journal file in the folder. Also with `--resume` and `show`.",
            show_default=False,
        ),
    ] = None,
    run_storage: Annotated[
        str | None,
        typer.Option(
            "--run-storage",
            metavar="URL",
            help="An object store for the runs, such as `s3://bucket/runs`, with Ray "
            "on nodes that share no folder. Also with `--resume`.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[
        Path,
        typer.Option(
            "--runs", metavar="DIR", help="Create the sweep below DIR/sweeps/<recipe>."
        ),
    ] = Path("runs"),
    run: SweepRun = None,
    name: SweepName = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a sweep, given by its folder, `--run` or `--name`, or the "
            "newest one.",
        ),
    ] = False,
    slurm: Annotated[
        Path | None,
        typer.Option(
            "--slurm",
            metavar="FILE",
            help="Write a SLURM job-array script with one task per trial, and train "
            "nothing.",
            show_default=False,
        ),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="With `--resume` and `export`: allow the recipe of the sweep to "
            "import code outside rlcli, and its trackers to contact a host.",
        ),
    ] = False,
    max_time: MaxTime = None,
    trial: Annotated[
        int | None,
        typer.Option(
            "--trial",
            min=0,
            metavar="N",
            help="With `export`: export this trial instead of the winner. With "
            "`--resume`: train only this trial, as a job-array task does.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
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
        from rlcli.sweeps.slurm import train_trial

        limit = options.parse_max_time(max_time)
        status = train_trial(verb, trial, max_time=limit, trust=trust)
        raise typer.Exit(EXIT_CODES[status])
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
            set=tuple(set),
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
    if slurm is not None:
        code = sweep_screen.report_script(
            folder, slurm, quiet=quiet, addresses=addresses
        )
        raise typer.Exit(code)
    is_trusted = trust or not resume
    raise typer.Exit(
        sweep_screen.report_end(
            folder, quiet=quiet, json=json, trust=is_trusted, addresses=addresses
        )
    )


def _train_group(file: str, recipe: str, *, trust: bool) -> int:
    from rlcli.sweeps import grouping  # here, to keep `--help` fast

    return training_outcome.complete(grouping.train_group, file, recipe, trust=trust)


def _check_words(verb: str, rest: list[str]) -> None:
    """Refuses a number of words that the verb does not have."""
    expected = _VERBS[verb]
    if len(rest) != len(expected):
        usage = " ".join((f"rlcli sweep {verb}", *expected))
        raise typer.BadParameter(f"expected `{usage}`", param_hint=verb)
