"""Learning benchmark: the table of `docs/learning.md`.

    python -m benchmarks.learning [--curves] [--runs DIR] [NAME …]

Trains each recipe of `rows.py`, or only the named ones, all seeds as one program in a
separate process, and evaluates 100 greedy episodes with the last parameters of each
seed. Writes the results to `results.json` beside this file, and from there to the
table, to the pages of `docs/algorithms`, with a learning curve (extra `plot`), and to
the comment at the beginning of each recipe.
`--curves` only trains, and draws the curves. `--runs` keeps the run folders, from which
`python -m benchmarks.zoo --runs DIR` takes policies, and continues those that it finds,
so that an interruption costs little.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.learning import headers, table
from benchmarks.learning.rows import ROWS, Row
from rlcli import recipe
from rlcli.runs.differences import find_differences
from rlcli.runs.metrics import read_metrics

RESULTS = Path(__file__).with_name("results.json")
RECIPES = Path(__file__).parents[2] / "recipes"
PAGE = RECIPES.parent / "docs" / "learning.md"
COPIES = PAGE.parent / "algorithms"  # pages with the lines of their recipes
CURVES = PAGE.parent / "images" / "learning"
EPISODES = 100


def rlcli(*arguments: str) -> str:
    """Runs an rlcli command in a separate process and returns its stdout."""
    process = subprocess.run(
        [sys.executable, "-m", "rlcli", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process.stdout


def train(row: Row, folder: Path) -> tuple[str, float]:
    """Trains the recipe, or continues its run, and draws its learning curve.

    Returns the run, and the seconds of the command, with those before it.
    """
    run, seconds = str(folder / row.recipe), 0.0
    first, count = str(row.seeds.start), str(len(row.seeds))
    command = ["train", row.recipe, "--seed", first, "--seeds", count, "--run", run]
    if Path(run).exists():
        refuse_other_options(run, row)
        command, seconds = ["resume", run], recorded_seconds(run, row.seeds)
    start = time.perf_counter()
    rlcli(*command, "--quiet")
    seconds += time.perf_counter() - start
    rlcli("plot", run, "--output", str(CURVES / f"{row.recipe}.svg"))
    return run, seconds


def refuse_other_options(run: str, row: Row) -> None:
    """Exits if a run has other options or seeds than its recipe and row have now."""
    seeds = [f"train.seed={row.seeds.start}", f"train.seeds={len(row.seeds)}"]
    trained, wanted = (
        recipe.resolve(recipe.load_recipe(path, changes))
        for path, changes in ((f"{run}/resolved.yaml", []), (row.recipe, seeds))
    )
    if differences := find_differences(trained, wanted):
        names = ", ".join(differences)
        sys.exit(f"`{run}` has other options ({names}): remove it, or pass another DIR")


def recorded_seconds(run: str, seeds: range) -> float:
    """The seconds until the last row of metrics, which have the speed of all seeds."""
    seconds, step = 0.0, 0
    for row in read_metrics(run):
        if row["seed"] == seeds[0] and "steps_per_second" in row:
            seconds += (row["T"] - step) * len(seeds) / row["steps_per_second"]
            step = row["T"]
    return seconds


def measure(row: Row, folder: Path) -> dict[str, Any]:
    """Trains the recipe in a folder and evaluates it."""
    run, seconds = train(row, folder)
    result = json.loads(rlcli("eval", run, "--episodes", str(EPISODES), "--json"))
    return {
        "environment": result["environment"],
        "steps": recipe.load_recipe(row.recipe).train.steps,
        "seeds": [row.seeds[0], row.seeds[-1]],
        "tuned": [*row.tuned[:1], *row.tuned[-1:]],
        "seconds": round(seconds, 1),
        "means": [seed["mean"] for seed in result["seeds"]],
        "iqm": result["return"]["iqm"],
        "ci95": result["return"]["ci95"],
    }


def main() -> None:
    """Measures the named recipes; writes the table after every recipe."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning")
    parser.add_argument("names", nargs="*", help="recipes; all by default")
    parser.add_argument("--curves", action="store_true", help="only draw the curves")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep the run folders")
    options = parser.parse_args()
    names = options.names or [row.recipe for row in ROWS]
    rows = {row.recipe: row for row in ROWS}
    if unknown := sorted(set(names) - set(rows)):
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(rows)}")
    for name in names:
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.runs or Path(temporary)
            if options.curves:
                train(rows[name], folder)
                update_pages(stored_results())
            else:
                store(rows[name], measure(rows[name], folder))


def stored_results() -> dict[str, Any]:
    """The results so far. Another process may have added some."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def store(row: Row, result: Mapping[str, Any]) -> None:
    """Adds a result to the stored ones, and writes all pages anew."""
    print(table.line(row, result), flush=True)
    results = {**stored_results(), row.recipe: result}
    known = [row.recipe for row in ROWS]
    ordered = {name: results[name] for name in known if name in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(table.page(ROWS, ordered), encoding="utf-8")
    update_pages(ordered)
    update_headers(ordered)


def update_headers(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Updates what the comments at the beginning of recipes say about their return."""
    for row in ROWS:
        if row.recipe in results and row.has_header:
            path = RECIPES / f"{row.recipe}.yaml"
            text = path.read_text(encoding="utf-8")
            path.write_text(headers.update(text, results[row.recipe]), encoding="utf-8")


def update_pages(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Updates the lines and curves of recipes on the pages of the algorithms."""
    curves = {path.stem for path in CURVES.glob("*.svg")}
    for path in COPIES.glob("*.md"):
        text = table.update_copies(path.read_text("utf-8"), ROWS, results)
        path.write_text(table.update_curves(text, curves), encoding="utf-8")


if __name__ == "__main__":
    main()
