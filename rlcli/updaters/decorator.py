"""The mechanism of decorators such as `rule`: a function becomes an updater."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import optax

from rlcli.registry import register
from rlcli.types import Network, Policy, Updater
from rlcli.updaters import Spaces


class Parts(NamedTuple):
    """The positional arguments of an updater factory."""

    spaces: Spaces
    networks: Callable[..., Network]
    policies: Callable[..., Policy]
    optimizer: optax.GradientTransformation


def updater_decorator(
    build: Callable[[functools.partial, Any, Parts], Updater],
    options: type[Any],
    names: Sequence[str],
    defaults: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> Callable[[Callable], Callable[..., Updater]]:
    """Returns a decorator that registers an updater under the name of a function.

    The options of the updater are the function's keyword-only parameters, then the
    fields `names` of the NamedTuple `options`. `defaults` override the default values
    of all fields. `build(function, options, parts)` makes the updater: its first
    argument is the function with its own options bound. `facts` are passed to
    `register`. Raises TypeError if an entry of `defaults` is not a field.
    """
    hints = typing.get_type_hints(options, include_extras=True)
    values = options(**defaults)._asdict()
    common_parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=values[name],
            annotation=hints[name],
        )
        for name in names
    ]

    def decorate(function: Callable) -> Callable[..., Updater]:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        own_parameters = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
        signature = inspect.Signature(
            [*_part_parameters(), *own_parameters, *common_parameters]
        )

        @functools.wraps(function)
        def updater(*parts: Any, **option_values: Any) -> Updater:
            binding = signature.bind(*parts, **option_values)
            binding.apply_defaults()
            arguments = binding.arguments
            own_options = {each.name: arguments[each.name] for each in own_parameters}
            common_options = {name: arguments[name] for name in names}
            return build(
                functools.partial(function, **own_options),
                options(**{**values, **common_options}),
                Parts(*(arguments[name] for name in Parts._fields)),
            )

        updater.__signature__ = signature  # type: ignore[attr-defined] # PEP 362
        return register("updater", **facts)(updater)

    return decorate


def _part_parameters() -> list[inspect.Parameter]:
    """The positional parameters of every updater factory."""
    hints = typing.get_type_hints(Parts)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter(name, kind, annotation=hints[name]) for name in Parts._fields
    ]
