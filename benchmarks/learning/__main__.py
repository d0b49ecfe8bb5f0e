"""How well recipes learn: the table of `docs/learning.md`.

    python -m benchmarks.learning [NAME …]

Trains each recipe of `rows.py`, or only those that are named, all seeds as one program
in a process of its own, and plays 100 greedy episodes with the last parameters of each.
What it finds goes to `results.json` beside this file, and from there to the table.
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
EPISODES = 100


def rlcli(*arguments: str) -> str:
    """What a command of rlcli prints, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "rlcli", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def measure(row: Row) -> dict[str, Any]:
    """Trains the recipe and evaluates it."""
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        train = ("train", row.recipe, "--seeds", str(row.seeds), "--run", run)
        start = time.perf_counter()
        rlcli(*train, "--quiet")
        seconds = time.perf_counter() - start
        played = json.loads(rlcli("eval", run, "--episodes", str(EPISODES), "--json"))
    return {
        "environment": played["environment"],
        "steps": recipe.load_recipe(row.recipe).train.steps,
        "seconds": round(seconds, 1),
        "means": [seed["mean"] for seed in played["seeds"]],
        "iqm": played["return"]["iqm"],
        "ci95": played["return"]["ci95"],
    }


def main() -> None:
    """Measures what was asked for; writes the table after every recipe."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning")
    parser.add_argument("names", nargs="*", help="recipes; all if there are none")
    asked = parser.parse_args().names
    known = [row.recipe for row in ROWS]
    if unknown := sorted(set(asked) - set(known)):
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(known)}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for row in ROWS:
        if asked and row.recipe not in asked:
            continue
        results[row.recipe] = measure(row)
        print(table.line(row, results[row.recipe]), flush=True)
        ordered = {name: results[name] for name in known if name in results}
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
        PAGE.write_text(table.page(ROWS, ordered), encoding="utf-8")


if __name__ == "__main__":
    main()
