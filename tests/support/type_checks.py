"""Checks the annotations of rlcli at run time, with jaxtyping and beartype.

After `install()`, arguments and results of each function are checked against their
annotations, in modules of rlcli that were not imported before. The names of axes are
bound for the length of a call: "T B" of one argument is "T B" of another and of the
result.
"""

import functools
import inspect
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from beartype import BeartypeConf, FrozenDict, beartype
from beartype.door import die_if_unbearable
from beartype.vale import Is
from jaxtyping import Shaped, install_import_hook, jaxtyped

# A `float` option is a schedule's value: within a program it is a scalar array.
_NUMBER = float | int | Shaped[Any, ""]
_CONF = BeartypeConf(hint_overrides=FrozenDict({float: _NUMBER}))


def install():
    """Checks all modules of rlcli that are imported from now on."""
    return install_import_hook("rlcli", "type_checks.check")


def check(function):
    """`beartype`, which also checks the fields of NamedTuples.

    A NamedTuple is checked where a function receives or returns it, not where it is
    made: JAX makes them of anything, such as shapes, axes and differences.
    """
    if function.__module__ == "rlcli.cli":  # Typer passes a context of another class
        return function
    hints = function.__annotations__
    function.__annotations__ = {name: _with_fields(hints[name]) for name in hints}
    return beartype(function, conf=_CONF)


def _with_fields(hint):
    """The hint, where each NamedTuple of rlcli is checked field by field."""
    if _is_record(hint):
        return _checked_record(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and arguments:
        return tuple[tuple(map(_with_fields, arguments))]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_with_fields, arguments))]  # noqa: UP007 - not literal
    return hint


def _is_record(hint):
    return (
        inspect.isclass(hint)
        and issubclass(hint, tuple)
        and hasattr(hint, "_fields")
        and hint.__module__.startswith("rlcli.")
    )


@functools.cache
def _checked_record(record):
    def holds(value):
        # Each record binds its axes anew: a tracer returns fewer rows than it is given.
        with jaxtyped("context"):
            for name, hint in _field_hints(record).items():
                field = getattr(value, name)
                if isinstance(field, tuple) and not field:
                    continue  # () is an absent part, such as what is stored elsewhere
                die_if_unbearable(
                    field,
                    hint,
                    conf=_CONF,
                    exception_prefix=f"{record.__name__}.{name}: ",
                )
        return True

    return Annotated[record, Is[holds]]


@functools.cache
def _field_hints(record):
    """The hints of the fields; {} if one names a class imported for types only."""
    try:
        hints = get_type_hints(record, include_extras=True)
    except NameError:
        return {}
    return {name: _with_fields(hint) for name, hint in hints.items()}
