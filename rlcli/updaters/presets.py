"""Presets: an updater registered under another name, with other defaults."""

import inspect
from collections.abc import Callable
from typing import Any

from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Updater


def preset(
    factory: Callable[..., Updater], facts: dict[str, Any], **defaults: Any
) -> Callable[[Callable], Callable[..., Updater]]:
    """Decorator that registers `factory` with these defaults under a function's name.

    The decorated function provides only its name and its docstring. `facts` are the
    preset's defaults for other sections of a recipe.
    """
    base = factory.__name__
    signature = inspect.signature(factory, eval_str=True)
    parameters = signature.parameters

    def decorate(function: Callable) -> Callable[..., Updater]:
        def updater(*parts: Any, **options: Any) -> Updater:
            try:
                return factory(*parts, **{**defaults, **options})
            except RlcliError as error:
                # The message names the base, which the recipe does not.
                note = f"`{function.__name__}` is a preset of `{base}`"
                hint = f"{error.hint}; {note}" if error.hint else note
                raise RlcliError(error.message, hint, code=error.code) from error

        updater.__name__, updater.__doc__ = function.__name__, function.__doc__
        updater.__module__ = function.__module__
        updater.__signature__ = signature.replace(  # type: ignore[attr-defined] # PEP 362
            parameters=[
                parameter.replace(default=defaults.get(name, parameter.default))
                for name, parameter in parameters.items()
            ]
        )
        return register("updater", preset_of=base, **facts)(updater)

    return decorate
