"""Options shared by several commands, as defaults of parameters for Typer."""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

import rlcli
from rlcli.cli import completion, output
from rlcli.quoting import quote_shell
from rlcli.runs import durations, thread_layout

MAX_SEED = 2**31 - 1  # also the largest seed of a recipe
_TYPED = "COMMANDLINE"  # among the sources of a parameter's value
_typed: Sequence[str] = ()  # the parameters of the current command that were typed


def option(
    name: str,
    help: str,
    *,
    default: Any = None,
    words: Sequence[str] = (),
    complete: Callable[..., list[str]] | None = None,
    **limits: Any,
) -> Any:
    """An option, named with the word for its value, as in `--seeds N`.

    `|` separates several names. A shell completes one of `words`, or of the
    candidates of `complete`. `limits`: `min`, `max`.
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


def flag(name: str, help: str) -> Any:
    """An option without a value, false by default."""
    return option(name, help, default=False)


def repeated_option(name: str, help: str, **options: Any) -> Any:
    """An option that can be given several times; `options` are those of `option`."""
    return option(name, help, default=[], **options)


def argument(
    name: str,
    help: str,
    complete: Callable[..., list[str]] | None = None,
    *,
    default: Any = ...,
) -> Any:
    """An argument with its name in the usage; `complete` as for an option."""
    return typer.Argument(default, metavar=name, help=help, autocompletion=complete)


def seed_option(help: str, default: int | None = None) -> Any:
    """The option `--seed`."""
    return option("--seed N", help, default=default, min=0, max=MAX_SEED)


def select(
    function: Callable[..., Any], arguments: Mapping[str, Any], **changes: Any
) -> dict[str, Any]:
    """Those arguments of a command that a function of rlcli takes.

    `arguments` are the `locals()` of the command; its `output_`, which is no module,
    is the `output` of the function, and its `max_time` becomes that of
    `parse_deadline`. `changes` replace some of them.
    """
    given = {**arguments, **arguments.get("engines", {})}
    given = {name.removesuffix("_"): value for name, value in given.items()} | changes
    if isinstance(limit := given.get("max_time"), str):
        given["max_time"] = parse_deadline(limit, given.get("engine", "local"))
    taken = inspect.signature(function).parameters
    return {name: given[name] for name in taken if name in given}


def call(
    function: Callable[..., Any], arguments: Mapping[str, Any], **changes: Any
) -> Any:
    """Calls a function of rlcli with those arguments of its command that it takes."""
    return function(**select(function, arguments, **changes))


def call_for_policy(
    function: str,
    check: Callable[..., Any],
    arguments: Mapping[str, Any],
    **changes: Any,
) -> Any:
    """Calls a function of rlcli, by its name, for the run at the command's `path`.

    `check` is called first, and threads are set, before the function imports JAX.
    """
    path = choose_run(arguments["path"])
    changes |= {"path": path, "run": path}
    call(check, arguments, **changes)
    thread_layout.apply_for_policy(path)
    return call(getattr(rlcli, function), arguments, **changes)


def remember_typed(context: Any) -> None:
    """Remembers which parameters of a command its command line has."""
    global _typed
    _typed = [
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) and source.name == _TYPED
    ]


def refuse(message: str, names: Collection[str]) -> None:
    """Refuses options, by the names of their parameters, that were typed."""
    for name in _typed:
        if name in names:
            hint = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(message, param_hint=hint)


def refuse_others(message: str, taken: Collection[str]) -> None:
    """Refuses all options that were typed, except some and the argument `words`."""
    refuse(message, {*_typed} - {"words", *taken})


def parse_deadline(text: str | None, engine: str = "local") -> float | None:
    """The end of `--max-time`, counted from the start of the process.

    Of a job array, the seconds of each task.
    """
    if text is None:
        return None
    try:
        seconds = durations.parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--max-time") from error
    is_array = engine == "slurm"
    return seconds if is_array else durations.deadline_of(seconds, durations.START_TIME)


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


SET = repeated_option(
    "--set KEY=VALUE",
    "Override an option of the recipe: `train.steps=1000`. Can be repeated.",
    complete=completion.complete_setting,
)
INIT = option(
    "--init RUN",
    "Start from what a run, a checkpoint or a policy has learned: `init.from` of the "
    "recipe.",
    complete=completion.complete_run,
)
SEEDS = option("--seeds N", "Train N consecutive seeds in one program.", min=1)
VARY = repeated_option(
    "--vary KEY=VALUE,...",
    "Train a run for each value: `optimizer.learning_rate=1e-4,1e-3`. Repeat it for a "
    "grid.",
    complete=completion.complete_vary_option,
)
VARY_ZIP = repeated_option(
    "--vary-zip KEY=VALUE,...",
    "Like `--vary`, but pairs the values of all `--vary-zip` options in order, instead "
    "of a grid.",
    complete=completion.complete_vary_option,
)
SMOKE = flag("--smoke", "Test the whole pipeline with a tiny budget.")
SWEEP_RUN = option("--run DIR", "Create the sweep in exactly DIR.")
SWEEP_NAME = option("--name NAME", "Name the folder of the sweep.")
MAX_TIME = option(
    "--max-time TIME",
    "Save a checkpoint and stop after this time: `90s`, `10m`, `3h50m`.",
)
QUIET = flag("--quiet", "Print only warnings and errors to stderr.")
TRUST = option(
    "--trust/--no-trust",
    "Whether the run's recipe may import code outside rlcli. By default if your rlcli "
    "has trained the run, or you trust its folder (`rlcli trust`).",
)
TRUST_RECIPE = option(
    "--trust/--no-trust",
    "Whether the recipe may import code outside rlcli, and have trackers that "
    "contact a host. `--no-trust`: for a recipe from elsewhere.",
    default=True,
)
COORDINATOR = option(
    "--coordinator HOST:PORT",
    "Train one agent in several processes: the address of process 0, or "
    "`auto` to read it from SLURM, Open MPI or torchrun.",
)
PROCESS = option(
    "--process I/N", "With `--coordinator`: this is process I of N, numbered from 0."
)
RECIPES = argument(
    "RECIPE",
    "YAML files, or names of built-in recipes.",
    complete=completion.complete_recipe,
)
RUN_FOLDER = argument("RUN", "The folder of a run.", complete=completion.complete_run)
POLICY_PATH = argument(
    "CHECKPOINT|RUN",
    "A policy or checkpoint file, the folder of a run, or a policy of the "
    "zoo, such as `zoo/ppo_cartpole`.",
    complete=completion.complete_policy,
)
BEST = flag(
    "--best", "Use the policy of each seed's best evaluation, not the latest one."
)
EXPLORE = flag("--explore", "Explore as in training, instead of greedily.")
SEED = seed_option("Random seed of the episodes.", 0)
SEED_OF_RUN = seed_option("A seed of the run. Default: the first.")
JSON = flag("--json", "Print the result as JSON.")
RUNS = argument(
    "RUN",
    "Run folders, or folders that contain runs.",
    complete=completion.complete_run,
)
GROUP = option(
    "--group KEY",
    "Group runs by `recipe` (with all its options), by `name`, or by an "
    "option such as `updater.name`. `run`: one group per run; `cell`: the cells of a "
    "study over all its environments. Default: `cell` in a study, else `recipe`.",
)
FILTER = repeated_option(
    "--filter|--where KEY=VALUE",
    "Only runs with this option or field: `updater.name=ppo`, `status!=finished`, "
    "`recipe=dqn_*`, `return>=400`. Can be repeated.",
)
TAGGED = repeated_option("--tag TAG", "Only runs with this tag. Can be repeated.")
REFERENCE = repeated_option(
    "--reference [ENV=]LOW,HIGH",
    "Reference returns, scaled to 0 and 1 for statistics over environments. Can be "
    "repeated.",
)
WIDTH = option(
    "--width WIDTH",
    "The width of a figure for a paper: a `column` of 3.25 inches, or a `page` of "
    "6.75.",
    words=("column", "page"),
)
SERIF = flag("--serif", "Draw a figure in a font with serifs.")
METRIC = option(
    "--y METRIC",
    "A metric, such as `loss`. Default: `evaluation.mean`, or without "
    "evaluations `avg_G`.",
)
CENTER = option(
    "--center NAME",
    "Aggregate seeds by `mean` or `iqm` (interquartile mean).",
    default="mean",
    words=("mean", "iqm"),
)
THRESHOLD = option(
    "--threshold VALUE",
    "Report when a curve or a seed first reaches this value, such as 475.",
)


def _engines(
    jobs: int | None = option(
        "--jobs N",
        "Train in at most N processes at once. Default: one per core.",
        min=1,
    ),
    engine: str = option(
        "--engine NAME",
        "Where processes run: `local` (this machine), `ray` (a Ray cluster) or "
        "`slurm` (write the script of a job array, and train nothing).",
        default="local",
        words=("local", "ray", "slurm"),
    ),
    address: str | None = option(
        "--address ADDRESS",
        "The Ray cluster: `auto`, `ray://HOST:PORT`. Default: this machine.",
    ),
    cpus: float = option(
        "--cpus N", "CPUs of a process, with Ray or SLURM.", default=1.0, min=0
    ),
    gpus: float = option(
        "--gpus N", "GPUs of a process, with Ray or SLURM.", default=0.0, min=0
    ),
    run_storage: str | None = option(
        "--run-storage URL",
        "An object store for the runs, such as `s3://bucket/runs`, with Ray on "
        "nodes that share no folder. Name it again to continue.",
    ),
    script: Path | None = option(
        "--script FILE",
        "The script that `--engine slurm` writes. Default: `slurm/array.sh` in the "
        "folder of the study.",
    ),
) -> None:
    """The options of all that train several runs."""


_ENGINES = inspect.signature(_engines).parameters


def with_engines(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: gives a command the options of engines, as its `**engines`."""
    own = [*inspect.signature(command, eval_str=True).parameters.values()][:-1]
    parameters = [*own, *_ENGINES.values()]

    @functools.wraps(command)
    def call(**keywords: Any) -> None:
        parse_deadline(keywords["max_time"])  # refuses it before anything is read
        if "run" in _typed:
            refuse("has no effect beside `--run`", ["runs"])
        command(**keywords)

    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def refuse_engines() -> None:
    """Refuses options of engines for a single run, which is trained in this process."""
    refuse("is for a study, not for a single run", _ENGINES.keys() - {"jobs"})
