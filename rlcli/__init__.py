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
from rlcli.errors import RlcliError
from rlcli.runs.durations import START_TIME as _START_TIME  # noqa: F401 - starts the clock

if TYPE_CHECKING:
    from rlcli.evaluation.evaluate import eval
    from rlcli.evaluation.render import render
    from rlcli.monitor import TrainMonitor
    from rlcli.recipe.catalog import list, show
    from rlcli.training import chunks, resume, train
    from rlcli.training.check import check
    from rlcli.utils.custom_loop import act, clock, q_function, transition
    from rlcli.utils.simulation import make, rollout

__version__ = "0.1.0"
__all__ = [
    "RlcliError",
    "TrainMonitor",
    "__version__",
    "act",
    "check",
    "chunks",
    "clock",
    "eval",
    "list",
    "make",
    "q_function",
    "render",
    "resume",
    "rollout",
    "show",
    "train",
    "transition",
]

_MODULES = MappingProxyType(
    {
        "TrainMonitor": "rlcli.monitor",
        "act": "rlcli.utils.custom_loop",
        "check": "rlcli.training.check",
        "chunks": "rlcli.training",
        "clock": "rlcli.utils.custom_loop",
        "eval": "rlcli.evaluation.evaluate",
        "list": "rlcli.recipe.catalog",
        "make": "rlcli.utils.simulation",
        "q_function": "rlcli.utils.custom_loop",
        "render": "rlcli.evaluation.render",
        "resume": "rlcli.training",
        "rollout": "rlcli.utils.simulation",
        "show": "rlcli.recipe.catalog",
        "train": "rlcli.training",
        "transition": "rlcli.utils.custom_loop",
    }
)


_SUBMODULES = ("environments", "spaces", "utils")  # `rlcli.spaces.sample(…)`


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES or f"rlcli.{name}" in _old_paths.MOVED:
        return importlib.import_module(f"rlcli.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> Iterable[str]:
    return sorted({*globals(), *__all__})
