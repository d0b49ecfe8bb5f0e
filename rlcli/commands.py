"""Commands: the table of the commands of the command line. Imports nothing at run time.

A command is a row here and a file `rlcli/cli/<name>.py`; `command_name` is what users
type. `rlcli --help`, the functions of the package `rlcli`, the tests of the
documentation and `.ci/run` read this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same rows for type checkers and editors; a test compares them
    from rlcli.evaluation.collect import collect as collect
    from rlcli.evaluation.evaluate import eval as eval
    from rlcli.evaluation.render import render as render
    from rlcli.exports.export import export as export
    from rlcli.monitor.watch import watch as watch
    from rlcli.recipe.catalog import list as list
    from rlcli.recipe.new import new as new
    from rlcli.recipe.schema import schema as schema
    from rlcli.reports.report import report as report
    from rlcli.results.compare import compare as compare
    from rlcli.results.plot import plot as plot
    from rlcli.runs.comparison import diff as diff
    from rlcli.runs.description import show as show
    from rlcli.runs.listing import runs as runs
    from rlcli.sweeps.sweep import sweep as sweep
    from rlcli.training import resume as resume
    from rlcli.training import train as train
    from rlcli.training.check import check as check
    from rlcli.training.doctor import doctor as doctor
    from rlcli.training.reproduce import reproduce as reproduce
    from rlcli.training.verify_resume import verify_resume as verify_resume

COMMANDS: Mapping[str, str] = MappingProxyType(  # name -> module of its function
    {
        "train": "rlcli.training",
        "resume": "rlcli.training",
        "eval": "rlcli.evaluation.evaluate",
        "render": "rlcli.evaluation.render",
        "export": "rlcli.exports.export",
        "collect": "rlcli.evaluation.collect",
        "list": "rlcli.recipe.catalog",
        "show": "rlcli.runs.description",
        "check": "rlcli.training.check",
        "runs": "rlcli.runs.listing",
        "diff": "rlcli.runs.comparison",
        "watch": "rlcli.monitor.watch",
        "plot": "rlcli.results.plot",
        "compare": "rlcli.results.compare",
        "report": "rlcli.reports.report",
        "sweep": "rlcli.sweeps.sweep",
        "new": "rlcli.recipe.new",
        "schema": "rlcli.recipe.schema",
        "doctor": "rlcli.training.doctor",
        "reproduce": "rlcli.training.reproduce",
        "verify_resume": "rlcli.training.verify_resume",
    }
)


def command_name(function: str) -> str:
    """The name of a function's command on the command line, as in `verify-resume`."""
    return function.replace("_", "-")
