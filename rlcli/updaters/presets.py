"""Presets: an updater registered under another name, with other defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlcli.registry import register
from rlcli.types import Updater


def preset(
    factory: Callable[..., Updater], facts: dict[str, Any], **defaults: Any
) -> Callable[[Callable], Callable[..., Updater]]:
    """Decorator that registers `factory` with these defaults under a function's name.

    The decorated function provides only its name and its docstring.
    """
    signature = inspect.signature(factory, eval_str=True)
    parameters = signature.parameters

    def decorate(function: Callable) -> Callable[..., Updater]:
        def updater(*parts: Any, **options: Any) -> Updater:
            return factory(*parts, **{**defaults, **options})

        updater.__name__, updater.__doc__ = function.__name__, function.__doc__
        updater.__module__ = function.__module__
        updater.__signature__ = signature.replace(  # type: ignore[attr-defined] # PEP 362
            parameters=[
                parameter.replace(default=defaults.get(name, parameter.default))
                for name, parameter in parameters.items()
            ]
        )
        return register("updater", **facts)(updater)

    return decorate
