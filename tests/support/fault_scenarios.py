"""Scenarios: a run that is created, saved and resumed while its files fail.

The program is compiled once: all cases share it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from fault_injection import KilledError

import rlcli
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.recipe import Recipe, load_recipe
from rlcli.runs import checkpoint
from rlcli.runs.metrics import CLOCK_FIELDS
from rlcli.runs.run_folder import Run, is_run
from rlcli.training import experiment, new_run
from rlcli.training.program import Program

DATA = {
    "environment": "FrozenLakeNonSlippery-v0",
    "network": "table",
    "updater": {"name": "q_learning", "loss": "mse"},
    "optimizer": {"name": "sgd", "learning_rate": 0.5},
    "train": {
        "steps": 200,
        "seeds": 2,
        "log": {"every": 50},
        "evaluate": {"every": 100, "episodes": 2},
        "checkpoint": {"every": 100},
    },
}
_OTHER_PROCESS = 99_999_999  # the number of the process that is killed
_LONGEST = 400  # characters of a message


class Result(NamedTuple):
    """What a run has computed."""

    checkpoint: bytes
    policies: tuple[bytes, bytes]
    rows: list[dict[str, Any]]


class BrokenRunError(AssertionError):
    """A run that was damaged by a fault."""


@functools.cache
def _compiled() -> Program:
    loaded = load_recipe(DATA)
    program = Program(loaded, build(loaded))
    program.check()
    return program


def _shared_program(recipe: Recipe, setup: Any) -> Program:
    """The compiled program, at its beginning; the recipe is always the same."""
    del recipe, setup
    program = _compiled()
    program.iteration, program._progress = 0, None
    program._on_host.clear()
    return program


@contextlib.contextmanager
def sharing_a_program() -> Iterator[None]:
    """Context in which all experiments have the same compiled program."""
    _compiled()
    with (
        mock.patch.object(experiment, "Program", _shared_program),
        mock.patch.object(Program, "check", lambda self: None),
        mock.patch.object(new_run.provenance, "collect_provenance", dict),
    ):
        yield


def train(folder: Path) -> None:
    """Creates a run and trains it: several saves, evaluations and rows."""
    rlcli.train(DATA, run=folder, quiet=True)


def resume(folder: Path) -> None:
    """Resumes a run to its end."""
    rlcli.resume(folder, quiet=True)


class Campaign:
    """Runs cases: a scenario in which one operation fails, and what is left of it.

    The undisturbed run and the interrupted run, from which `resume` starts, are made
    once, in `folder`.
    """

    def __init__(self, injector: Any, folder: Path) -> None:
        self.injector = injector
        self._folder = folder
        train(folder / "whole")
        self.expected = result(folder / "whole")
        # A run that was killed while it wrote its last checkpoint.
        with injector.inject(folder / "interrupted"):
            train(folder / "interrupted")
        self.counts = {"train": injector.count}
        shutil.rmtree(folder / "interrupted")
        self.interrupt(
            "train", folder / "interrupted", "kill", self.counts["train"] * 2 // 3
        )
        with self._copy() as copy, injector.inject(copy):
            resume(copy)
        self.counts["resume"] = injector.count

    def check(self, scenario: str, fault: str, at: int) -> str:
        """The outcome of a case; raises `BrokenRunError` if anything was lost."""
        with self._copy(empty=scenario == "train") as folder:
            outcome = self.interrupt(scenario, folder, fault, at)
            if outcome == "survived":
                self._compare(folder)
                return outcome
            for path in Run(folder).newest_first():
                checkpoint.read(path)
            if not is_run(folder):
                train(folder)
                self._compare(folder)
                return f"{outcome}, trained again"
            try:
                resume(folder)
            except RlcliError as error:
                raise BrokenRunError(f"cannot be resumed: {error}") from error
            self._compare(folder)
            return f"{outcome}, resumed"

    def interrupt(
        self, scenario: str, folder: Path, fault: str = "", at: int = 0
    ) -> str:
        """Runs a scenario in which an operation fails; returns how it ended."""
        function = {"train": train, "resume": resume}[scenario]
        with (
            mock.patch.object(os, "getpid", lambda: _OTHER_PROCESS),
            self.injector.inject(folder, fault, at),
        ):
            try:
                function(folder)
            except KilledError:
                return "killed"
            except RlcliError as error:
                if "\n" in error.message or len(error.message) > _LONGEST:
                    raise BrokenRunError(
                        f"not one clear line: {error.message}"
                    ) from error
                return "one error"
            except Exception as error:
                raise BrokenRunError(f"not a clear error: {error!r}") from error
        return "survived"

    def _compare(self, folder: Path) -> None:
        """Compares a run with the undisturbed one."""
        found = result(folder)
        for name in Result._fields:
            if getattr(found, name) != getattr(self.expected, name):
                raise BrokenRunError(f"`{name}` differs from the undisturbed run")

    @contextlib.contextmanager
    def _copy(self, *, empty: bool = False) -> Iterator[Path]:
        """A folder for a case: of the interrupted run, or an empty one."""
        copy = self._folder / "case"
        shutil.rmtree(copy, ignore_errors=True)
        if not empty:
            shutil.copytree(self._folder / "interrupted", copy)
        yield copy
        shutil.rmtree(copy, ignore_errors=True)


def result(folder: Path) -> Result:
    """What a finished run has computed; its folder has to be complete and clean."""
    run = Run(folder)
    leftovers = [path for path in folder.rglob("*") if path.name.endswith(".tmp")]
    if leftovers:
        raise BrokenRunError(f"temporary files: {leftovers}")
    if run.read_info()["status"] != "finished":
        raise BrokenRunError(f"status: {run.read_info()}")
    rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    latest = run.latest_checkpoint()
    assert latest is not None
    return Result(
        latest.read_bytes(),
        (run.policy.read_bytes(), run.best.read_bytes()),
        [{k: v for k, v in row.items() if k not in CLOCK_FIELDS} for row in rows],
    )
