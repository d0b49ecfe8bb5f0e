"""Options of classes of other libraries: the parameters of their constructors."""

import inspect
import typing
from collections.abc import Callable, Set
from typing import Annotated, Any, Literal

from rlcli.types import Structural


def class_options(
    maker: Callable, taken: Set[str], *, is_optional: bool = True
) -> dict[str, inspect.Parameter]:
    """The parameters of a class as keyword-only options, without names in `taken`.

    With `is_optional`, those without a default have the default null. Annotations that
    recipes cannot express, such as arrays and functions, allow anything.
    """
    try:
        signature = inspect.signature(maker, eval_str=True)
    except Exception:  # noqa: BLE001 - annotations may raise anything
        signature = inspect.signature(maker)

    def keyword(parameter: inspect.Parameter) -> inspect.Parameter:
        value: Any = parameter.annotation if _is_plain(parameter.annotation) else Any
        if value is float:  # on the host a number cannot follow a schedule
            value = Structural
        if is_optional and parameter.default is parameter.empty:
            parameter = parameter.replace(default=None)
            value = value | None
        return parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=value)

    return {
        name: keyword(parameter)
        for name, parameter in signature.parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and name not in taken
    }


def _is_plain(annotation: Any) -> bool:
    """Whether an annotation has only types of values in a recipe."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _is_plain(annotation.__origin__)
    if origin is Literal:
        return True
    kinds = (bool, int, float, str, None, type(None), list, dict, tuple, Any, ...)
    arguments = typing.get_args(annotation)
    return all(map(_is_plain, arguments)) if arguments else annotation in kinds
