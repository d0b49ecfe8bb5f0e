"""Scenarios: a run that is created, saved and resumed while its files fail."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from fault_injection import KilledError
from run_results import RunResult, differences, read_result

import rlcli
from rlcli.errors import RlcliError
from rlcli.loop.progress import Setup
from rlcli.recipe import Recipe, resolve
from rlcli.runs import checkpoint
from rlcli.runs.run_folder import Run, is_run
from rlcli.training import new_run
from rlcli.training.experiment import together
from rlcli.training.experiment.program import Program

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


class BrokenRunError(AssertionError):
    """A run that was damaged by a fault."""


@contextlib.contextmanager
def sharing_a_program() -> Iterator[list[Program]]:
    """Context in which all experiments have the program of the first one, compiled.

    They have to have the same recipe, as it is written in full. The value is a list
    with the program, empty until an experiment asks for it.
    """
    programs: list[Program] = []

    def share(recipe: Recipe, setup: Setup) -> Program:
        if not programs:
            program = Program(recipe, setup)
            program.check()
            programs.append(program)
        (program,) = programs
        if resolve(recipe) != resolve(program.recipe):
            raise BrokenRunError("the recipe of a run is not that of its program")
        program.iteration, program._progress = 0, None
        program._on_host.clear()
        return program

    check = Program.check
    with (
        mock.patch.object(together, "Program", share),
        mock.patch.object(
            Program, "check", lambda self: None if self in programs else check(self)
        ),
        mock.patch.object(new_run.provenance, "collect_provenance", dict),
    ):
        yield programs


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
        self.expected = finished_result(folder / "whole")
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
        return interrupt(self.injector, function, folder, fault, at)

    def _compare(self, folder: Path) -> None:
        """Compares a run with the undisturbed one."""
        if different := differences(finished_result(folder), self.expected):
            raise BrokenRunError(f"other {', '.join(different)} than undisturbed")

    @contextlib.contextmanager
    def _copy(self, *, empty: bool = False) -> Iterator[Path]:
        """A folder for a case: of the interrupted run, or an empty one."""
        copy = self._folder / "case"
        shutil.rmtree(copy, ignore_errors=True)
        if not empty:
            shutil.copytree(self._folder / "interrupted", copy)
        yield copy
        shutil.rmtree(copy, ignore_errors=True)


def interrupt(
    injector: Any,
    function: Callable[[Path], object],
    folder: Path,
    fault: str = "",
    at: int = 0,
) -> str:
    """Calls a function of a run while an operation fails; returns how it ended."""
    with (
        mock.patch.object(os, "getpid", lambda: _OTHER_PROCESS),
        injector.inject(folder, fault, at),
    ):
        try:
            function(folder)
        except KilledError:
            return "killed"
        except RlcliError as error:
            if "\n" in error.message or len(error.message) > _LONGEST:
                raise BrokenRunError(f"not one clear line: {error.message}") from error
            return "one error"
        except Exception as error:
            raise BrokenRunError(f"not a clear error: {error!r}") from error
    return "survived"


def finished_result(folder: Path) -> RunResult:
    """What a finished run has computed; its folder has to be complete and clean."""
    result = read_result(folder)
    if result.temporary_files:
        raise BrokenRunError(f"temporary files: {result.temporary_files}")
    if result.status != "finished":
        raise BrokenRunError(f"status: {Run(folder).read_info()}")
    assert result.checkpoint and len(result.policies) == 2
    return result
