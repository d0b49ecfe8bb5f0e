"""Registration of levels: one factory for the levels of a family."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rlcli.registry import register
from rlcli.types import Core


def register_levels(
    levels: Mapping[str, Mapping[str, Any]], max_steps: Callable[..., int]
) -> Callable[[Callable], Callable]:
    """Returns a decorator that registers a factory under the ids of its levels.

    Args:
        levels: the positional arguments of the factory, by the id of the level.
        max_steps: the time limit of a level, from the same arguments. It is also the
            default of the option `max_steps`.
    """

    def decorate(factory: Callable[..., Core]) -> Callable[..., Core]:
        for name, fixed in levels.items():
            limit = max_steps(**fixed)
            level = _level_factory(factory, fixed, limit)
            register("environment", name, time_limit=limit)(level)
        return factory

    return decorate


def _level_factory(
    factory: Callable[..., Core], fixed: Mapping[str, Any], limit: int
) -> Callable[..., Core]:
    """The factory of one level, with the options of the factory."""

    @functools.wraps(factory)
    def level(**options: Any) -> Core:
        return factory(**fixed, **{"max_steps": limit, **options})

    signature = inspect.signature(factory, eval_str=True)
    parameters = [
        parameter.replace(default=float(limit)) if name == "max_steps" else parameter
        for name, parameter in signature.parameters.items()
        if name not in fixed
    ]
    vars(level)["__signature__"] = signature.replace(parameters=parameters)
    return level
