"""`rlcli eval`: evaluates a trained policy over whole episodes."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import rlcli
from rlcli.cli import completion, options, output
from rlcli.quoting import quote_rich
from rlcli.runs import thread_layout
from rlcli.runs.formatting import format_number_of

COLUMNS = ("seed", "mean", "std", "min", "max", "length")


def command(
    path: Path = options.POLICY_PATH,
    best: bool = options.BEST,
    episodes: int = options.option(
        "--episodes N", "Episodes of each seed.", default=100, min=1
    ),
    seed: int = options.SEED,
    explore: bool = options.EXPLORE,
    environment: str | None = options.option(
        "--environment NAME",
        "Evaluate in another environment: `gymnasium/CartPole-v1`, or "
        "`{name: CartPole-v1, length: 0.7}`.",
        complete=completion.complete_environment,
    ),
    json: bool = options.JSON,
    trust: bool | None = options.TRUST,
) -> None:
    """Evaluate each seed's policy over whole episodes.

    Prints the returns of each seed, and over all seeds the mean, the interquartile mean
    (IQM) and its 95 % bootstrap interval; a single seed has none. Then the means of
    the numbers in `info` of the environment, such as a success rate. In the folder of a
    study, evaluates every run; in that of a sweep, the winner.
    """
    from rlcli.runs.locate import locate_policy  # here, to keep `--help` fast
    from rlcli.runs.study_record import find_study

    study, run_path = find_study(path), path
    if study is None or study.is_search:
        run_path = Path(options.choose_run(path))
        locate_policy(run_path, best=best)  # refuses a missing file without JAX
    thread_layout.apply_for_policy(run_path)
    result = options.call(rlcli.eval, locals(), path=run_path)
    if json:
        output.print_json(result)
    elif "cells" in result:
        _print_cells(result["cells"])
    else:
        _print_results(result)


def _print_cells(results: Sequence[Mapping[str, Any]]) -> None:
    """Prints a row for each cell, with the mean return of each seed."""
    from rlcli.runs.cell_table import CellResult, describe_results

    rows = [
        CellResult(
            each["values"],
            {row["seed"]: row["mean"] for row in each["seeds"]},
            each["return"],
            _note(each),
        )
        for each in results
    ]
    environments = {each["environment"] for each in results}
    place = f" on {environments.pop()}" if len(environments) == 1 else ""
    table = describe_results(rows, output.table_console().width)
    legend = (
        f"mean return of {format_number_of(results[0]['episodes'], 'episode')}{place}; "
        "over seeds: IQM and its 95 % bootstrap interval"
    )
    for line in (*table.splitlines(), legend):
        output.print_data(line)


def _note(result: Mapping[str, Any]) -> str:
    """The fault of a cell: it has failed, or some seeds are frozen."""
    from rlcli.runs.run_folder import Run

    if Run(Path(result["run"])).read_info().get("status") == "failed":
        return "failed"
    frozen = sum(row["frozen"] is not None for row in result["seeds"])
    return f"{frozen} frozen" if frozen else ""


def _print_results(result: Mapping[str, Any]) -> None:
    """Prints a row per seed and a line that summarizes all seeds."""
    console = output.console()
    frozen = {row["seed"]: row["frozen"] for row in result["seeds"] if row["frozen"]}
    header, rows = [*COLUMNS, *(["frozen"] if frozen else [])], []
    for row in result["seeds"]:
        cells = [str(row["seed"]), *(_format_number(row[k]) for k in COLUMNS[1:])]
        step = row["frozen"] and row["frozen"]["step"]
        cells += ["no" if step is None else f"at step {step:,}"] if frozen else []
        rows.append(cells)
    has_rule = console.is_terminal
    console.print(output.make_table(header, rows, has_rule=has_rule))
    for seed, record in frozen.items():
        line = f"seed {seed} is frozen: {record['reason']}"
        console.print(quote_rich(line), soft_wrap=True)
    for line in (*_summary(result, len(frozen)), *_describe_info(result["info"])):
        console.print(quote_rich(line), soft_wrap=True)
    for name, groups in result["parameters"].items():
        header = (name, "episodes", "mean", "IQM", "95 % interval")
        table = output.make_table(header, map(_group_row, groups), has_rule=has_rule)
        console.print(table)


def _group_row(group: Mapping[str, Any]) -> Sequence[str]:
    """The row of a value, or range of values, of a number of the environment."""
    values = [f"{group[key]:.4g}" for key in ("from", "to")]
    numbers = [_format_number(group[key]) for key in ("mean", "iqm")]
    interval = " … ".join(map(_format_number, group["ci95"] or [None]))
    label = " … ".join(dict.fromkeys(values))
    return [label, str(group["episodes"]), *numbers, interval]


def _summary(result: Mapping[str, Any], frozen: int) -> Iterator[str]:
    """The lines about all seeds."""
    total, seeds = result["return"], format_number_of(len(result["seeds"]), "seed")
    included = f" ({frozen} frozen, included)" if frozen else ""
    yield (
        f"return: mean {_format_number(total['mean'])}, IQM "
        f"{_format_number(total['iqm'])} over {seeds}{included} of "
        f"{format_number_of(result['episodes'], 'episode')} on {result['environment']}"
    )
    if total["ci95"] is None:
        yield f"95 % bootstrap interval of the IQM over seeds: n/a: {seeds}"
    else:
        interval = " … ".join(map(_format_number, total["ci95"]))
        yield f"95 % bootstrap interval of the IQM over {seeds}: {interval}"


def _describe_info(info: Mapping[str, Any]) -> Iterator[str]:
    """A line for each number that the environment logs."""
    for name, numbers in info.items():
        line = f"{name}: mean {_format_number(numbers['mean'])}"
        if numbers["ci95"] is not None:
            low, high = map(_format_number, numbers["ci95"])
            line += f", 95 % interval {low} … {high} over the episodes"
        yield line


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
