"""Old import paths: modules that have moved, and that documentation named before.

`import rlcli.agents` gives the module `rlcli.loop.agents` itself, not a copy of it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType

MOVED: Mapping[str, str] = MappingProxyType(
    {
        "rlcli.agents": "rlcli.loop.agents",
        "rlcli.checkpoint": "rlcli.runs.checkpoint",
        "rlcli.learning": "rlcli.updaters.learner",
        "rlcli.libraries": "rlcli.registry.libraries",
        "rlcli.environments.host": "rlcli.environments.adapters.host",
        "rlcli.environments.pools": "rlcli.environments.adapters.pools",
        "rlcli.updaters.q_learning": "rlcli.updaters.td.q_learning",
    }
)


class _Finder:
    """Finds a module under its old name; asked after all other finders."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(name, self) if name in MOVED else None  # type: ignore[arg-type] # a loader by its methods

    def create_module(self, spec: ModuleSpec) -> None:
        """The default module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Puts the module under its new name in place of this one."""
        name = module.__name__
        sys.modules[name] = importlib.import_module(MOVED[name])


sys.meta_path.append(_Finder())  # type: ignore[arg-type] # a finder by its methods
