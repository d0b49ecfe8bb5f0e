"""`rlcli sweep`: tunes hyperparameters, and shows and exports sweeps."""

from pathlib import Path
from typing import Any

import typer

import rlcli
from rlcli.cli import completion, options, output

_VERBS = {"show": ("FOLDER",), "export": ("FOLDER", "FILE.yaml")}
_TAKEN = {"show": ("storage", "json"), "export": ("trial", "trust")}  # their options


@options.with_engines
def command(
    words: list[str] = options.argument(
        "RECIPE | show FOLDER | export FOLDER FILE",
        "The recipe to tune, by file or name; with `--resume` also the folder "
        "of a sweep. `show` prints the results of a sweep, `export` writes the "
        "winner's recipe.",
        complete=completion.complete_sweep,
    ),
    space: Path | None = options.option(
        "--space FILE",
        "A YAML file with the search space: `optimizer.learning_rate: "
        "{log_uniform: [1e-5, 1e-2]}`; also `uniform`, `int`, `choice`.",
    ),
    trials: int | None = options.option(
        "--trials N",
        "Number of trials. Default: 50, all combinations of a grid, or 20 of `pbt`.",
        min=1,
    ),
    seeds: int | None = options.option(
        "--seeds N", "Seeds of each trial. Default: 5.", min=1
    ),
    seed: int | None = options.seed_option(
        "The first seed of a trial, and the seed of the sampler."
    ),
    sampler: str | None = options.option(
        "--sampler NAME",
        "`tpe` (default), `random`, `grid`, `cmaes`, `nsga2`, or `pbt`: "
        "population-based training.",
        words=("tpe", "random", "grid", "cmaes", "nsga2", "pbt"),
    ),
    pruner: str | None = options.option(
        "--pruner NAME",
        "How to stop bad trials early: `asha` (default), `median` or `none`.",
        words=("asha", "median", "none"),
    ),
    objective: str | None = options.option(
        "--objective NAME",
        "Compare trials by the IQM over seeds of the last `return` (default) or "
        "`evaluation.success`, `auc` (area under the learning curve) or `steps_to:475` "
        "(steps until this return).",
        words=("return", "auc", "steps_to:", "evaluation.success"),
    ),
    confirm: int | None = options.option(
        "--confirm N",
        "Train the N best trials again with other seeds. Default: 3.",
        min=0,
    ),
    confirm_seeds: int | None = options.option(
        "--confirm-seeds N",
        "Seeds of each confirmation run. Default: as in a trial.",
        min=1,
    ),
    together: int | None = options.option(
        "--together N",
        "Begin N trials at once; those of equal structure are one program. "
        "Default: by the sampler and `--jobs`.",
        min=1,
    ),
    ready: int | None = options.option(
        "--ready N",
        "`pbt`: the worst members copy the best ones after every N "
        "evaluations. Default: 1.",
        min=1,
    ),
    set: list[str] = options.SET,
    init: Path | None = options.INIT,
    storage: str | None = options.option(
        "--storage URL",
        "A database for Optuna, such as `sqlite:///sweeps.db`, instead of a "
        "journal file in the folder. Also with `--resume` and `show`.",
    ),
    runs: Path = options.option(
        "--runs DIR",
        "Create the sweep below DIR/sweeps/<recipe>.",
        default=Path("runs"),
    ),
    run: Path | None = options.SWEEP_RUN,
    name: str | None = options.SWEEP_NAME,
    resume: bool = options.flag(
        "--resume",
        "Continue a sweep, given by its folder, `--run` or `--name`, or the "
        "newest one.",
    ),
    trust: bool | None = options.option(
        "--trust/--no-trust",
        "With `--resume` and `export`: allow the recipe of the sweep to "
        "import code outside rlcli, and its trackers to contact a host.",
    ),
    max_time: str | None = options.MAX_TIME,
    trial: int | None = options.option(
        "--trial N", "With `export`: export this trial instead of the winner.", min=0
    ),
    quiet: bool = options.QUIET,
    json: bool = options.JSON,
    **engines: Any,
) -> None:
    """Tune hyperparameters, and confirm the best trials.

    Each trial is a run with several seeds and other values of the recipe's options. The
    best trials are trained again with other seeds, and the best of these wins.
    `--resume` continues a sweep that was stopped.
    """
    from rlcli.cli import sweep_screen  # here, to keep `--help` fast

    verb, *rest = words
    if verb in _VERBS and (rest or not Path(verb).exists()):
        if len(rest) != len(_VERBS[verb]):
            usage = " ".join((f"rlcli sweep {verb}", *_VERBS[verb]))
            raise typer.BadParameter(f"expected `{usage}`", param_hint=verb)
        options.refuse_others(f"has no effect on `{verb}`", _TAKEN[verb])
        if verb == "export":
            file = rlcli.export_sweep(rest[0], rest[1], trial=trial, trust=trust)
            output.print_data(file)
        else:
            data = rlcli.show_sweep(rest[0], storage=storage)
            sweep_screen.print_sweep(data, json=json)
        return
    if rest:
        raise typer.BadParameter("expected a single recipe", param_hint="RECIPE")
    options.refuse("requires `export`", ["trial"])
    keywords = options.select(rlcli.sweep, locals(), recipe=verb)
    raise typer.Exit(sweep_screen.run_sweep(quiet=quiet, json=json, **keywords))
