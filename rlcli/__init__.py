"""rlcli: trains, evaluates and renders reinforcement learning agents from YAML recipes.

Each command of the CLI is a function here, with the same keywords:

    folder = rlcli.train("dqn_cartpole", seeds=8)
    print(rlcli.eval(folder)["return"])

The functions are imported on first use, because importing JAX is slow.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rlcli import _old_paths as _old_paths
from rlcli.commands import COMMANDS
from rlcli.errors import RlcliError, check_platform
from rlcli.runs.durations import START_TIME as _START_TIME  # noqa: F401 - starts the clock

if TYPE_CHECKING:
    from rlcli.commands import *  # noqa: F403 - the functions of the commands
    from rlcli.evaluation.load import load
    from rlcli.monitor.train_monitor import TrainMonitor
    from rlcli.sweeps.export import export_sweep
    from rlcli.sweeps.summary import show_sweep
    from rlcli.training import chunks
    from rlcli.training.batch import train_all
    from rlcli.utils.custom_loop import act, clock, q_function, transition
    from rlcli.utils.simulation import make, rollout

__version__ = "0.1.0"
__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - partly from the table
    "RlcliError",
    "TrainMonitor",
    "__version__",
    "act",
    "chunks",
    "clock",
    "export_sweep",
    "load",
    "make",
    "q_function",
    "rollout",
    "show_sweep",
    "train_all",
    "transition",
    *COMMANDS,
]

_MODULES = MappingProxyType(
    {
        **COMMANDS,
        "TrainMonitor": "rlcli.monitor.train_monitor",
        "act": "rlcli.utils.custom_loop",
        "chunks": "rlcli.training",
        "clock": "rlcli.utils.custom_loop",
        "export_sweep": "rlcli.sweeps.export",
        "load": "rlcli.evaluation.load",
        "make": "rlcli.utils.simulation",
        "q_function": "rlcli.utils.custom_loop",
        "rollout": "rlcli.utils.simulation",
        "show_sweep": "rlcli.sweeps.summary",
        "train_all": "rlcli.training.batch",
        "transition": "rlcli.utils.custom_loop",
    }
)


_SUBMODULES = ("environments", "spaces", "utils")  # `rlcli.spaces.sample(…)`


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES or f"rlcli.{name}" in _old_paths.MOVED:
        return importlib.import_module(f"rlcli.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_platform()
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> Iterable[str]:
    return sorted({*globals(), *__all__})
