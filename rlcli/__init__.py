"""rlcli: from one YAML file to a trained, evaluated and rendered agent.

Each verb of the command line is a function here, with the same keywords:

    folder = rlcli.train("dqn_cartpole", seeds=8)
    print(rlcli.eval(folder)["return"])

They are imported when they are first asked for, for JAX takes its time.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rlcli.durations import STARTED as _STARTED  # noqa: F401 - the clock starts
from rlcli.errors import RlcliError

if TYPE_CHECKING:
    from rlcli.by_hand import act, clock, q_function, transition
    from rlcli.catalog import check, list, show
    from rlcli.evaluation import eval
    from rlcli.monitor import TrainMonitor
    from rlcli.rendering import render
    from rlcli.simulation import make, rollout
    from rlcli.training import chunks, resume, train

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
        "act": "rlcli.by_hand",
        "check": "rlcli.catalog",
        "chunks": "rlcli.training",
        "clock": "rlcli.by_hand",
        "eval": "rlcli.evaluation",
        "list": "rlcli.catalog",
        "make": "rlcli.simulation",
        "q_function": "rlcli.by_hand",
        "render": "rlcli.rendering",
        "resume": "rlcli.training",
        "rollout": "rlcli.simulation",
        "show": "rlcli.catalog",
        "train": "rlcli.training",
        "transition": "rlcli.by_hand",
    }
)


_SUBMODULES = ("environments", "spaces", "utils")  # `rlcli.spaces.sample(…)`


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"rlcli.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> Iterable[str]:
    return sorted({*globals(), *__all__})
