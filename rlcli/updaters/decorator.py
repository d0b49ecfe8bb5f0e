"""The mechanism of decorators such as `rule`: a function becomes an updater."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlcli import registry
from rlcli.errors import RlcliError, quote, suggest
from rlcli.types import Updater
from rlcli.updaters import Parts

# The sections of a recipe for which an updater may have defaults.
_SECTIONS = ("policy", "tracer", "replay", "unroll", "network", "head", "heads")


def describe_function(decorator: Callable, function: Callable) -> str:
    """Names a decorated function and its module for a message."""
    return (
        f"{decorator.__name__} `{function.__name__}` of module `{function.__module__}`"
    )


def describe_result(value: Any) -> str:
    """Describes a value for a message: an array by its shape, any other by its type."""
    if hasattr(value, "shape"):
        return f"an array of shape {value.shape}"
    return f"`{type(value).__name__}`"


def require_type(
    label: str, value: Any, expected: type[Any], hint: str, verb: str = "returned"
) -> None:
    """Refuses a value of another type; `label` names the function that returned it."""
    if not isinstance(value, expected):
        raise RlcliError(
            f"{label} {verb} {describe_result(value)} instead of `{expected.__name__}`",
            hint,
        )


def require_parentheses(decorator: Callable, argument: Any) -> None:
    """Refuses positional arguments: `@rule` without parentheses gets the function."""
    if argument is None:
        return
    name = decorator.__name__
    subject = quote(getattr(argument, "__name__", argument))
    raise RlcliError(
        f"`@{name}` takes keywords only, but was called with {subject}",
        f"write `@{name}()`, with parentheses"
        if callable(argument)
        else f"name the keyword, as in `@{name}(policy=…)`",
    )


def updater_decorator(
    decorator: Callable,
    build: Callable[[functools.partial, Any, Parts], Updater],
    options: type[Any],
    names: Sequence[str],
    defaults: Mapping[str, Any],
    sections: Mapping[str, Any],
    preset_of: str = "",
) -> Callable[[Callable], Callable[..., Updater]]:
    """Returns a decorator that registers an updater under the name of a function.

    It implements the public `decorator`, whose name and keywords messages quote. The
    options of the updater are the function's keyword-only parameters, then the
    fields `names` of the NamedTuple `options`. `defaults` override the default values
    of all fields, and `sections`, the updater's defaults for other sections of a
    recipe. `build(function, options, parts)` makes the updater: its first argument is
    the function with its own options bound. Raises an error if an entry of `defaults`
    is neither a field nor a section, or if a parameter of the function cannot be an
    option.
    """
    _refuse_unknown_keywords(decorator, options, defaults)
    fields = {name: defaults[name] for name in options._fields if name in defaults}
    record = options(**fields)
    given = {**sections, **defaults}
    facts = {name: given[name] for name in _SECTIONS if name in given}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parts = inspect.Parameter("parts", kind, annotation=Parts)
    expanded = registry.options(lambda *, options=record: options)
    common_parameters = [expanded[name] for name in names]

    def decorate(function: Callable) -> Callable[..., Updater]:
        own_parameters = _own_parameters(decorator, function, names)
        signature = inspect.Signature([parts, *own_parameters, *common_parameters])

        @functools.wraps(function)
        def updater(*given: Any, **option_values: Any) -> Updater:
            binding = signature.bind(*given, **option_values)
            binding.apply_defaults()
            arguments = binding.arguments
            own_options = {each.name: arguments[each.name] for each in own_parameters}
            common_options = {name: arguments[name] for name in names}
            return build(
                functools.partial(function, **own_options),
                record._replace(**common_options),
                arguments["parts"],
            )

        updater.__signature__ = signature  # type: ignore[attr-defined] # PEP 362
        return registry.register("updater", preset_of=preset_of, **facts)(updater)

    return decorate


def _refuse_unknown_keywords(
    decorator: Callable, options: type[Any], keywords: Mapping[str, Any]
) -> None:
    """Refuses keywords that are no option, no section and not the decorator's own."""
    parameters = inspect.signature(decorator).parameters.values()
    own = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    for name in keywords:
        if name not in (*options._fields, *_SECTIONS):
            raise RlcliError(
                f"`@{decorator.__name__}` has no keyword {quote(name)}",
                suggest(name, [*own, *options._fields, *_SECTIONS]),
            )


def _own_parameters(
    decorator: Callable, function: Callable, common_options: Sequence[str]
) -> list[inspect.Parameter]:
    """The keyword-only parameters of a function, all but the first.

    Refuses parameters that cannot be options of a recipe.
    """
    label = describe_function(decorator, function)
    parameters = [*inspect.signature(function, eval_str=True).parameters.values()]
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise RlcliError(
            f"{label} has no positional parameter",
            f"write `def {function.__name__}(context)`",
        )
    context, *own = parameters
    every = f"every updater made by `@{decorator.__name__}`"
    taken = {
        "parts": f"what {every} receives",
        **dict.fromkeys(common_options, f"an option of {every}"),
    }
    for parameter in own:
        name = parameter.name
        if parameter.kind is not parameter.KEYWORD_ONLY:
            raise RlcliError(
                f"parameter `{parameter}` of {label} is not an option",
                f"options are keyword-only: write `({context.name}, *, …)`",
            )
        if parameter.annotation is parameter.empty:
            raise RlcliError(
                f"option `{name}` of {label} has no annotation",
                f"annotate its type, as in `{name}: float`",
            )
        if owner := taken.get(name.removesuffix("_")):
            raise RlcliError(
                f"option `{name}` of {label} has a name that is taken: it is {owner}",
                "choose another name",
            )
    return own
