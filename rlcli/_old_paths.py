"""Old import paths: modules that have moved since documentation named them.

`import rlcli.agents` gives the module `rlcli.loop.agents` itself, not a copy of it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType

MOVED: Mapping[str, str] = MappingProxyType(
    {
        "rlcli.agents": "rlcli.loop.agents",
        "rlcli.checkpoint": "rlcli.runs.checkpoint",
        "rlcli.learning": "rlcli.updaters.learner",
        "rlcli.libraries": "rlcli.registry.libraries",
        "rlcli.action_masks": "rlcli.distributions.action_masks",
        "rlcli.datasets": "rlcli.replays.datasets",
        "rlcli.datasets.dataset": "rlcli.replays.datasets.dataset",
        "rlcli.datasets.names": "rlcli.replays.datasets.names",
        "rlcli.environments.host": "rlcli.environments.adapters.host",
        "rlcli.environments.pools": "rlcli.environments.adapters.pools",
        "rlcli.updaters.q_learning": "rlcli.updaters.td.q_learning",
    }
)


class _Finder:
    """Finds a module under its old name.

    Asked before all other finders, which would load the modules of a package that has
    moved a second time.
    """

    def find_spec(
        self, name: str, path: Iterable[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(name, self) if name in MOVED else None  # type: ignore[arg-type] # a loader by its methods

    def create_module(self, spec: ModuleSpec) -> None:
        """The default module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Puts the module under its new name in place of this one."""
        name = module.__name__
        sys.modules[name] = importlib.import_module(MOVED[name])


sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type] # a finder by its methods
