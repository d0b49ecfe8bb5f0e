"""Parts that cannot be used: factories that raise, or return something else."""

import sys


class _Odd:
    """An object whose every attribute raises."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    def __repr__(self):
        raise ZeroDivisionError("repr")

    def __eq__(self, other):
        raise ZeroDivisionError("eq")

    __hash__ = None


class _SilentError(Exception):
    """An exception without a message of its own."""

    def __str__(self):
        raise ZeroDivisionError("str")


def _raising(error):
    def factory(*parts, x=None, **options):
        raise error

    return factory


def _returning(value):
    def factory(*parts, x=None):
        return value

    return factory


part_value_error = _raising(ValueError("no\nsuch\x1b[31m thing"))
part_key_error = _raising(KeyError())
part_long = _raising(RuntimeError("x" * 100_000))
part_exits = _raising(SystemExit("bye"))
part_odd_message = _raising(_SilentError())
part_memory = _raising(RecursionError())
part_stops = _raising(StopIteration(3))
part_none = _returning(None)
part_text = _returning("text")
part_odd = _returning(_Odd())
part_tuple = _returning(((),) * 4)
part_itself = _returning(_returning(None))
part_module = sys
part_number = 5
part_odd_object = _Odd()


def part_positional(a, b, c, d, e, f, /):
    return None


def part_annotated(*parts, x: "1 / 0" = 5):
    return None


def part_loops(*parts, x=None):
    return part_loops(*parts, x=x)


class part_class:  # noqa: N801
    def __init__(self, *parts, x=None):
        raise KeyError("missing")


class part_property:  # noqa: N801
    @property
    def __signature__(self):
        raise ZeroDivisionError("signature")

    def __call__(self, *parts, x=None):
        return None


part_instance = part_property()
