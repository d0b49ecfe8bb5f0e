"""Spellings: former names of options and values, which recipes still accept.

`FormerName` and `FormerValue` in an option's annotation declare them.
"""

from __future__ import annotations

import inspect
import typing
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from rlcli.errors import SpellingWarning


def current_names(
    parameters: Mapping[str, inspect.Parameter], keys: Iterable[str]
) -> dict[str, str]:
    """The current name of each key, with a warning where it is a former one."""
    from rlcli.types import FormerName  # here: imports Gymnasium, in 0.1 s

    renamed = {
        item.name: name
        for name, parameter in parameters.items()
        for item in _metadata(parameter.annotation)
        if isinstance(item, FormerName)
    }
    names = {key: renamed.get(key, key) for key in keys}
    for former, name in names.items():
        _warn(former, name)
    return names


def current_value(metadata: Iterable[Any], value: Any) -> Any:
    """The current spelling of a value, with a warning if it is a former one."""
    from rlcli.types import FormerValue  # here: imports Gymnasium, in 0.1 s

    for item in metadata:
        if isinstance(item, FormerValue) and value == item.former:
            _warn(item.former, item.current)
            return item.current
    return value


def _metadata(annotation: Any) -> tuple[Any, ...]:
    is_annotated = typing.get_origin(annotation) is typing.Annotated
    return annotation.__metadata__ if is_annotated else ()


def _warn(former: str, current: str) -> None:
    if former != current:
        message = f"`{former}` is now spelled `{current}`"
        warnings.warn(message, SpellingWarning, stacklevel=2)
