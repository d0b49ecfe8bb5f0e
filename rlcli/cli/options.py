"""Options shared by several commands, as defaults of parameters for Typer."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from rlcli.cli import completion, output
from rlcli.quoting import quote_shell
from rlcli.runs import durations

MAX_SEED = 2**31 - 1  # also the largest seed of a recipe


def option(
    default: Any,
    name: str,
    help: str,
    *,
    words: Sequence[str] = (),
    complete: Callable[..., list[str]] | None = None,
    **limits: Any,
) -> Any:
    """An option, named with the word for its value, as in `--seeds N`.

    `|` separates several names. A shell completes one of `words`, or what `complete`
    lists. `limits`: `min`, `max`.
    """
    flag, _, value = name.partition(" ")
    if words:
        complete = completion.complete_word(*words)
    return typer.Option(
        default,
        *flag.split("|"),
        metavar=value or None,
        help=help,
        autocompletion=complete,
        **limits,
    )


def argument(
    name: str,
    help: str,
    complete: Callable[..., list[str]] | None = None,
    *,
    default: Any = ...,
) -> Any:
    """An argument with its name in the usage; `complete` as for an option."""
    return typer.Argument(default, metavar=name, help=help, autocompletion=complete)


def call(
    function: Callable[..., Any], arguments: Mapping[str, Any], **changes: Any
) -> Any:
    """Calls a function of rlcli with those arguments of its command that it takes.

    `arguments` are the `locals()` of the command; its `output_`, which is no module,
    is the `output` of the function. `changes` replace some of them.
    """
    given = {name.removesuffix("_"): value for name, value in arguments.items()}
    given |= changes
    taken = inspect.signature(function).parameters
    return function(**{name: given[name] for name in taken if name in given})


def parse_max_time(text: str | None) -> float | None:
    """Parses `--max-time` to seconds; None if it is not given."""
    if text is None:
        return None
    try:
        return durations.parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--max-time") from error


def parse_deadline(text: str | None) -> durations.Deadline | None:
    """The end of `--max-time`, counted from the start of the process."""
    return durations.deadline_of(parse_max_time(text), durations.START_TIME)


def parse_limit(text: str | None, engines: Mapping[str, Any]) -> float | None:
    """The end of `--max-time` of a study; of each task of a job array its seconds."""
    is_array = engines["engine"] == "slurm"
    return parse_max_time(text) if is_array else parse_deadline(text)


def choose_run(
    path: str | Path, *, quiet: bool = False, keep_study: bool = False
) -> str | Path:
    """The path, or one of several runs in it, which a message names.

    `keep_study`: the path itself if it is the folder of a study.
    """
    from rlcli.runs.locate import choose_among  # here, to keep `--help` fast
    from rlcli.runs.study_record import find_study

    if keep_study and find_study(path):
        return path
    choice = choose_among(Path(path))
    if choice is None or choice.count < 2:
        return path
    if not quiet:
        output.print_message(
            f"using `{choice.run}`, {choice.reason} of {choice.count} runs; to use "
            f"another, pass its folder: `rlcli runs {quote_shell(path)}` lists "
            "all runs"
        )
    return choice.run


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Parses `--size` to (width, height); None if it is not given."""
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    sides = [side for side in (width, height) if side.isascii() and side.isdecimal()]
    if len(sides) < 2 or not all(1 <= int(side) <= 10_000 for side in sides):
        raise typer.BadParameter(
            f"expected a width and a height such as 600x400, got {text!r}",
            param_hint="--size",
        )
    return int(width), int(height)


SET = option(
    [],
    "--set KEY=VALUE",
    "Override an option of the recipe: `train.steps=1000`. Can be repeated.",
    complete=completion.complete_setting,
)
INIT = option(
    None,
    "--init RUN",
    "Start from what a run, a checkpoint or a policy has learned: `init.from` of the "
    "recipe.",
    complete=completion.complete_run,
)
SEEDS = option(None, "--seeds N", "Train N consecutive seeds in one program.", min=1)
VARY = option(
    [],
    "--vary KEY=VALUE,...",
    "Train a run for each value: `optimizer.learning_rate=1e-4,1e-3`. Repeat it for a "
    "grid.",
    complete=completion.complete_vary_option,
)
VARY_ZIP = option(
    [],
    "--vary-zip KEY=VALUE,...",
    "Like `--vary`, but pairs the values of all `--vary-zip` options in order, instead "
    "of a grid.",
    complete=completion.complete_vary_option,
)
SMOKE = option(False, "--smoke", "Test the whole pipeline with a tiny budget.")
SWEEP_RUN = option(None, "--run DIR", "Create the sweep in exactly DIR.")
SWEEP_NAME = option(None, "--name NAME", "Name the folder of the sweep.")
MAX_TIME = option(
    None,
    "--max-time TIME",
    "Save a checkpoint and stop after this time: `90s`, `10m`, `3h50m`.",
)
QUIET = option(False, "--quiet", "Print only warnings and errors to stderr.")
TRUST = option(
    None,
    "--trust/--no-trust",
    "Whether the run's recipe may import code outside rlcli. By default if your rlcli "
    "has trained the run, or you trust its folder (`rlcli trust`).",
)
TRUST_RECIPE = option(
    True,
    "--trust/--no-trust",
    "Whether the recipe may import code outside rlcli, and have trackers that "
    "contact a host. `--no-trust`: for a recipe from elsewhere.",
)
COORDINATOR = option(
    None,
    "--coordinator HOST:PORT",
    "Train one agent in several processes: the address of process 0, or "
    "`auto` to read it from SLURM, Open MPI or torchrun.",
)
PROCESS = option(
    None,
    "--process I/N",
    "With `--coordinator`: this is process I of N, numbered from 0.",
)
RUN_FOLDER = argument("RUN", "The folder of a run.", complete=completion.complete_run)
POLICY_PATH = argument(
    "CHECKPOINT|RUN",
    "A policy or checkpoint file, the folder of a run, or a policy of the "
    "zoo, such as `zoo/ppo_cartpole`.",
    complete=completion.complete_policy,
)
BEST = option(
    False,
    "--best",
    "Use the policy of each seed's best evaluation, not the latest one.",
)
SEED = option(0, "--seed N", "Random seed of the episodes.", min=0, max=MAX_SEED)
JSON = option(False, "--json", "Print the result as JSON.")
RUNS = argument(
    "RUN...",
    "Run folders, or folders that contain runs.",
    complete=completion.complete_run,
)
GROUP = option(
    None,
    "--group KEY",
    "Group runs by `recipe` (with all its options), by `name`, or by an "
    "option such as `updater.name`. `run`: one group per run; `cell`: the cells of a "
    "study over all its environments. Default: `cell` in a study, else `recipe`.",
)
FILTER = option(
    [],
    "--filter|--where KEY=VALUE",
    "Only runs with this option or field: `updater.name=ppo`, `status!=finished`, "
    "`recipe=dqn_*`, `return>=400`. Can be repeated.",
)
TAGGED = option([], "--tag TAG", "Only runs with this tag. Can be repeated.")
REFERENCE = option(
    [],
    "--reference [ENV=]LOW,HIGH",
    "Reference returns, scaled to 0 and 1 for statistics over environments. Can be "
    "repeated.",
)
WIDTH = option(
    None,
    "--width WIDTH",
    "The width of a figure for a paper: a `column` of 3.25 inches, or a `page` of "
    "6.75.",
    words=("column", "page"),
)
SERIF = option(False, "--serif", "Draw a figure in a font with serifs.")
METRIC = option(
    None,
    "--y METRIC",
    "A metric, such as `loss`. Default: `evaluation.mean`, or without "
    "evaluations `avg_G`.",
)
CENTER = option(
    "mean",
    "--center NAME",
    "Aggregate seeds by `mean` or `iqm` (interquartile mean).",
    words=("mean", "iqm"),
)
THRESHOLD = option(
    None,
    "--threshold VALUE",
    "Report when a curve or a seed first reaches this value, such as 475.",
)
_ENGINES: Mapping[str, tuple[Any, Any]] = {  # of all that train several runs
    "jobs": (
        int | None,
        option(
            None,
            "--jobs N",
            "Train in at most N processes at once. Default: one per core.",
            min=1,
        ),
    ),
    "engine": (
        str,
        option(
            "local",
            "--engine NAME",
            "Where processes run: `local` (this machine), `ray` (a Ray cluster) or "
            "`slurm` (write the script of a job array, and train nothing).",
            words=("local", "ray", "slurm"),
        ),
    ),
    "address": (
        str | None,
        option(
            None,
            "--address ADDRESS",
            "The Ray cluster: `auto`, `ray://HOST:PORT`. Default: this machine.",
        ),
    ),
    "cpus": (
        float,
        option(1.0, "--cpus N", "CPUs of a process, with Ray or SLURM.", min=0),
    ),
    "gpus": (
        float,
        option(0.0, "--gpus N", "GPUs of a process, with Ray or SLURM.", min=0),
    ),
    "run_storage": (
        str | None,
        option(
            None,
            "--run-storage URL",
            "An object store for the runs, such as `s3://bucket/runs`, with Ray on "
            "nodes that share no folder. Name it again to continue.",
        ),
    ),
    "script": (
        Path | None,
        option(
            None,
            "--script FILE",
            "The script that `--engine slurm` writes. Default: `slurm/array.sh` in the "
            "folder of the study.",
        ),
    ),
}


def with_engines(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: gives a command the options of engines, as its `**engines`."""
    own = [*inspect.signature(command, eval_str=True).parameters.values()][:-1]
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
        )
        for name, (kind, default) in _ENGINES.items()
    ]

    @functools.wraps(command)
    def call(**keywords: Any) -> None:
        command(**keywords)

    call.__annotations__ = {each.name: each.annotation for each in (*own, *shared)}
    call.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    return call


def refuse_engines(engines: Mapping[str, Any]) -> None:
    """Refuses options of engines for a single run, which is trained in this process."""
    for name, (_, default) in _ENGINES.items():
        if name != "jobs" and engines[name] != default.default:
            raise typer.BadParameter(
                "is for a study, not for a single run",
                param_hint=f"--{name.replace('_', '-')}",
            )
