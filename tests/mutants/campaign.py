"""Mutation testing with cosmic-ray: do the tests notice a changed line? `make mutants`.

Each mutant is a copy of the package with one small change, such as `+` for `-`. The
tests of its module should fail ("killed"). A mutant that survives shows what no test
checks. The random sample has at most one mutant of each place in the source, and
depends on its seed and the source only.

Runs in an environment with cosmic-ray, which starts a new process for each mutant.
Tools that fork them from one process do not suit JAX, which warns that a fork of its
threads may deadlock.
cosmic-ray changes files in place, so this mutates a copy of the checkout, in
`build/mutants/tree`. `cr-html build/mutants/NAME.sqlite` shows the results of a module.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import resource
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import (
    MutationSpec,
    TestOutcome,
    WorkerOutcome,
    WorkItem,
    WorkResult,
)

_CHECKOUT = Path(__file__).parents[2]
_BUILD = _CHECKOUT / "build" / "mutants"
_TREE = _BUILD / "tree"
_NOT_COPIED = {"build", "dist", "runs"}  # and hidden files, such as `.git` and `.venv`
_PATIENCE = (3.0, 30.0)  # a mutant may take 3 times as long, and 30 seconds
_MEMORY = 8 * 2**30  # bytes of address space: a mutated shape may be of any size
_SKIPPED = WorkResult(WorkerOutcome.SKIPPED, output="not in the sample")


class Module(NamedTuple):
    """A table of `mutants.toml`: files to mutate, and the tests that concern them."""

    name: str
    files: list[Path]  # relative to the checkout
    tests: list[str]


class Change(NamedTuple):
    """The lines that a mutant changes, without their indentation."""

    file: str
    before: str
    after: str | None  # None: any


def main() -> int:
    settings = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help=", ".join(settings["modules"]))
    parser.add_argument("--sample", type=int, default=30, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--survivors", action="store_true", help="only those that survived last time"
    )
    parser.add_argument("--python", default=sys.executable, help="runs the tests")
    options = parser.parse_args()
    if unknown := {*options.modules} - {*settings["modules"]}:
        parser.error(f"unknown modules: {', '.join(sorted(unknown))}")
    equivalent = [
        Change(row["file"], row["before"], row.get("after"))
        for row in settings["equivalent"]
    ]
    _copy_checkout()
    os.chdir(_TREE)
    os.environ["PYTHONPATH"] = str(_TREE)  # also for processes that tests start
    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, hard_limit))
    counts = {}
    for name in options.modules or settings["modules"]:
        table = settings["modules"][name]
        files = [path for glob in table["files"] for path in sorted(Path().glob(glob))]
        module = Module(name, files, table["tests"])
        counts[name] = _test_module(module, options, equivalent)
    for name, (killed, total) in counts.items():
        print(f"{name:12} {killed:4} of {total} killed")
    return int(any(killed < total for killed, total in counts.values()))


def _copy_checkout() -> None:
    """Copies the checkout; keeps the programs that earlier runs have compiled."""
    _TREE.mkdir(parents=True, exist_ok=True)
    for path in _CHECKOUT.iterdir():
        if path.name in _NOT_COPIED or path.name.startswith("."):
            continue
        copy = _TREE / path.name
        if path.is_dir():
            shutil.rmtree(copy, ignore_errors=True)
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, copy, ignore=ignored)
        else:
            shutil.copy2(path, copy)


def _test_module(
    module: Module, options: argparse.Namespace, equivalent: list[Change]
) -> tuple[int, int]:
    """Runs the tests for each mutant of the sample; counts those killed, and all."""
    timeout = _measure_tests(module, options.python)
    session = _BUILD / f"{module.name}.sqlite"
    with use_db(session, WorkDB.Mode.create) as database:
        items = _list_mutants(database, module, options.survivors)
        number = len(items) if options.survivors else options.sample
        sample = dict(_draw_sample(items, number, options.seed, equivalent))
        skipped = [item.job_id for item in items if item.job_id not in sample]
        database.set_multiple_results(skipped, _SKIPPED)
        killed = 0
        for index, (job, (item, change)) in enumerate(sample.items(), 1):
            (mutation,) = item.mutations
            command = _command(module, options.python, mutation.module_path)
            start = time.monotonic()
            result = mutate_and_test(item.mutations, shlex.join(command), timeout)
            database.set_result(job, result)
            is_killed = result.test_outcome == TestOutcome.KILLED
            killed += is_killed
            place = f"{mutation.module_path}:{mutation.start_pos[0]}"
            print(
                f"{index}/{len(sample)} {'killed  ' if is_killed else 'SURVIVED'} "
                f"{place}, {time.monotonic() - start:.0f} s\n"
                f"    - {change.before}\n    + {change.after}",
                flush=True,
            )
    return killed, len(sample)


def _list_mutants(
    database: WorkDB, module: Module, only_survivors: bool
) -> list[WorkItem]:
    """All mutants of a module, or those that survived last time, in a fixed order."""
    if only_survivors:
        items = [
            item
            for item, result in database.completed_work_items
            if result.test_outcome == TestOutcome.SURVIVED
        ]
    else:
        init(module.files, database, {})
        items = [*database.work_items]
    return sorted(items, key=_place_and_operator)


def _measure_tests(module: Module, python: str) -> float:
    """Runs the tests of a module unchanged; returns the timeout of its mutants."""
    start = time.monotonic()
    subprocess.run(_command(module, python), check=True)
    factor, seconds = _PATIENCE
    return factor * (time.monotonic() - start) + seconds


def _command(module: Module, python: str, mutated: Path | None = None) -> list[str]:
    """The command that tests a module, with the test file of the mutated file first."""
    first = []
    if mutated is not None:
        mirrored = Path("tests", *mutated.parent.parts[1:], f"test_{mutated.name}")
        first = [str(mirrored)] if mirrored.exists() else []
    tests = [*first, *(name for name in module.tests if name not in first)]
    options = ["-q", "-x", "-m", "not slow and not pages"]
    return [python, "-m", "pytest", *options, *tests]


def _draw_sample(
    items: Iterable[WorkItem], number: int, seed: int, equivalent: list[Change]
) -> Iterator[tuple[str, tuple[WorkItem, Change]]]:
    """Draws mutants, at most one for each place, that may behave differently."""
    items, places = list(items), set()
    random.Random(seed).shuffle(items)
    for item in items:
        (mutation,) = item.mutations
        place = (mutation.module_path, mutation.start_pos)
        if len(places) == number or place in places:
            continue
        change = _find_change(mutation)
        if change is None or {change, change._replace(after=None)} & {*equivalent}:
            continue
        places.add(place)
        yield item.job_id, (item, change)


def _find_change(mutation: MutationSpec) -> Change | None:
    """The change of a mutant; None if it is none, or not valid Python."""
    source = mutation.module_path.read_text()
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    mutant = mutate_code(source, operator, mutation.occurrence)
    if mutant is None or not _behaves_differently(source, mutant):
        return None
    lines = [
        line
        for line in difflib.ndiff(source.splitlines(), mutant.splitlines())
        if line.startswith(("- ", "+ "))
    ]
    before, after = (
        " ".join(line[2:].strip() for line in lines if line.startswith(sign)).strip()
        for sign in "-+"
    )
    return Change(str(mutation.module_path), before, after)


def _behaves_differently(source: str, mutant: str) -> bool:
    """Whether a mutant is valid Python and differs in more than annotations."""
    try:
        return _dump_code(source) != _dump_code(mutant)
    except SyntaxError:
        return False


def _dump_code(source: str) -> str:
    """The syntax tree of a module without its annotations, which are never evaluated.

    Annotations of a part's options are: they are tested as a schema, elsewhere.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def _place_and_operator(item: WorkItem) -> tuple[Any, ...]:
    (mutation,) = item.mutations
    name, occurrence = mutation.operator_name, mutation.occurrence
    return str(mutation.module_path), mutation.start_pos, name, occurrence


if __name__ == "__main__":
    sys.exit(main())
