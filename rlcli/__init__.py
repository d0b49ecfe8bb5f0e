"""rlcli: trains, evaluates and renders reinforcement learning agents from YAML recipes.

Each command of the CLI is a function here, with the same keywords:

    folder = rlcli.train("dqn_cartpole", seeds=8)
    print(rlcli.eval(folder)["return"])

A command is a row of `COMMAND_GROUPS` and a file `rlcli/cli/<name>.py`. `rlcli --help`,
the functions of the package, the tests of the documentation and `.ci/run` read this
table. The functions are imported on first use, because importing JAX is slow.
"""

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlcli.errors import RlcliError as RlcliError
from rlcli.errors import check_platform
from rlcli.runs.durations import START_TIME as _START_TIME  # noqa: F401 - starts the clock

if TYPE_CHECKING:  # a test compares these rows with the tables below
    from rlcli.evaluation.collect import collect as collect
    from rlcli.evaluation.evaluate import eval as eval
    from rlcli.evaluation.export.export import export as export
    from rlcli.evaluation.inspection.inspect import inspect as inspect
    from rlcli.evaluation.load import load as load
    from rlcli.evaluation.render import render as render
    from rlcli.monitor.train_monitor import TrainMonitor as TrainMonitor
    from rlcli.monitor.watch import watch as watch
    from rlcli.networks.pytree import from_pytree as from_pytree
    from rlcli.recipe.catalog import list as list
    from rlcli.recipe.new import new as new
    from rlcli.recipe.schema import schema as schema
    from rlcli.results.board.board import board as board
    from rlcli.results.claims import claim as claim
    from rlcli.results.compare import compare as compare
    from rlcli.results.metric_table import episodes as episodes
    from rlcli.results.metric_table import metrics as metrics
    from rlcli.results.plot import plot as plot
    from rlcli.results.report.report import report as report
    from rlcli.runs.description import show as show
    from rlcli.runs.differences import diff as diff
    from rlcli.runs.listing import runs as runs
    from rlcli.runs.ownership import trust as trust
    from rlcli.studies.bsuite.suite import bsuite as bsuite
    from rlcli.studies.preview import preview_study as preview_study
    from rlcli.studies.search.export_sweep import export_sweep as export_sweep
    from rlcli.studies.search.summary import show_sweep as show_sweep
    from rlcli.studies.search.sweep import sweep as sweep
    from rlcli.studies.train_study import study as study
    from rlcli.training import chunks as chunks
    from rlcli.training import resume as resume
    from rlcli.training import train as train
    from rlcli.training.checks.check import check as check
    from rlcli.training.checks.doctor import doctor as doctor
    from rlcli.training.checks.reproduce import reproduce as reproduce
    from rlcli.training.checks.verify_resume import verify_resume as verify_resume
    from rlcli.utils.custom_loop import act as act
    from rlcli.utils.custom_loop import clock as clock
    from rlcli.utils.custom_loop import q_function as q_function
    from rlcli.utils.custom_loop import transition as transition
    from rlcli.utils.simulation import make as make
    from rlcli.utils.simulation import rollout as rollout

__version__ = "0.1.0"
# Group in `rlcli --help` -> name -> module of its function.
COMMAND_GROUPS: Mapping[str, Mapping[str, str]] = {
    "Run": {
        "train": "rlcli.training",
        "resume": "rlcli.training",
        "eval": "rlcli.evaluation.evaluate",
        "render": "rlcli.evaluation.render",
        "study": "rlcli.studies.train_study",
    },
    "Look": {
        "list": "rlcli.recipe.catalog",
        "show": "rlcli.runs.description",
        "runs": "rlcli.runs.listing",
        "watch": "rlcli.monitor.watch",
        "board": "rlcli.results.board.board",
        "inspect": "rlcli.evaluation.inspection.inspect",
    },
    "Compare": {
        "diff": "rlcli.runs.differences",
        "plot": "rlcli.results.plot",
        "compare": "rlcli.results.compare",
        "claim": "rlcli.results.claims",
        "report": "rlcli.results.report.report",
        "bsuite": "rlcli.studies.bsuite.suite",
    },
    "Tune": {"sweep": "rlcli.studies.search.sweep"},
    "Share": {
        "export": "rlcli.evaluation.export.export",
        "collect": "rlcli.evaluation.collect",
        "reproduce": "rlcli.training.checks.reproduce",
    },
    "Set up": {
        "new": "rlcli.recipe.new",
        "check": "rlcli.training.checks.check",
        "verify_resume": "rlcli.training.checks.verify_resume",
        "schema": "rlcli.recipe.schema",
        "doctor": "rlcli.training.checks.doctor",
        "trust": "rlcli.runs.ownership",
    },
}
COMMANDS: Mapping[str, str] = {
    name: module for group in COMMAND_GROUPS.values() for name, module in group.items()
}
_MODULES = {
    **COMMANDS,
    "TrainMonitor": "rlcli.monitor.train_monitor",
    "act": "rlcli.utils.custom_loop",
    "chunks": "rlcli.training",
    "clock": "rlcli.utils.custom_loop",
    "episodes": "rlcli.results.metric_table",
    "export_sweep": "rlcli.studies.search.export_sweep",
    "from_pytree": "rlcli.networks.pytree",
    "load": "rlcli.evaluation.load",
    "make": "rlcli.utils.simulation",
    "metrics": "rlcli.results.metric_table",
    "preview_study": "rlcli.studies.preview",
    "q_function": "rlcli.utils.custom_loop",
    "rollout": "rlcli.utils.simulation",
    "show_sweep": "rlcli.studies.search.summary",
    "transition": "rlcli.utils.custom_loop",
}
__all__ = ["RlcliError", "__version__", *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]
_SUBMODULES = ("environments", "spaces", "utils")  # `rlcli.spaces.sample(…)`


def command_name(function: str) -> str:
    """The name of a function's command on the command line, as in `verify-resume`."""
    return function.replace("_", "-")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"rlcli.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_platform()
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> Iterable[str]:
    return sorted({*globals(), *__all__})
