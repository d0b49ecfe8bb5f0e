"""Optional libraries, installed by extras, imported only where a recipe uses them."""

from __future__ import annotations

import importlib
from types import ModuleType

from rlcli.errors import RlcliError


def import_library(name: str, install: str) -> ModuleType:
    """Imports a library; an error names what to `install`, such as `rlcli[gymnax]`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RlcliError(
            f"`{name}` cannot be imported: {error}", f'pip install "{install}"'
        ) from error
