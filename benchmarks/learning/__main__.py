"""Learning benchmark: the table of `docs/learning.md`.

    python -m benchmarks.learning [NAME …]

Trains each recipe of `rows.py`, or only the named ones, all seeds as one program in a
separate process, and evaluates 100 greedy episodes with the last parameters of each
seed. Writes the results to `results.json` beside this file, and from there to the
table and to the pages of `docs/algorithms`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.learning import table
from benchmarks.learning.rows import ROWS, Row
from rlcli import recipe

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "learning.md"
COPIES = PAGE.parent / "algorithms"  # pages with the lines of their recipes
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


def measure(row: Row) -> dict[str, Any]:
    """Trains the recipe and evaluates it."""
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        train = ("train", row.recipe, "--seeds", str(row.seeds), "--run", run)
        start = time.perf_counter()
        rlcli(*train, "--quiet")
        seconds = time.perf_counter() - start
        result = json.loads(rlcli("eval", run, "--episodes", str(EPISODES), "--json"))
    return {
        "environment": result["environment"],
        "steps": recipe.load_recipe(row.recipe).train.steps,
        "seconds": round(seconds, 1),
        "means": [seed["mean"] for seed in result["seeds"]],
        "iqm": result["return"]["iqm"],
        "ci95": result["return"]["ci95"],
    }


def main() -> None:
    """Measures the named recipes; writes the table after every recipe."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning")
    parser.add_argument("names", nargs="*", help="recipes; all by default")
    names = parser.parse_args().names
    known = [row.recipe for row in ROWS]
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(known)}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for row in ROWS:
        if names and row.recipe not in names:
            continue
        results[row.recipe] = measure(row)
        print(table.line(row, results[row.recipe]), flush=True)
        ordered = {name: results[name] for name in known if name in results}
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
        PAGE.write_text(table.page(ROWS, ordered), encoding="utf-8")
        for path in COPIES.glob("*.md"):
            text = table.update_copies(path.read_text("utf-8"), ROWS, ordered)
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
