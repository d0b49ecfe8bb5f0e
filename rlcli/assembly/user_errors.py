"""User errors: exceptions of user code, in one line with their file and line."""

import contextlib
import sys
from collections.abc import Iterator

from rlcli.errors import RlcliError, quote
from rlcli.recipe import Recipe
from rlcli.registry import plugins, user_code


@contextlib.contextmanager
def explain_user_errors(recipe: Recipe) -> Iterator[None]:
    """Converts an exception of user code to an `RlcliError` with its file and line.

    User code is called while a program is traced, between the functions of JAX, whose
    traceback is long. Exceptions of rlcli itself keep theirs.
    """
    try:
        yield
    except (RlcliError, MemoryError):  # `limit_building` explains a MemoryError
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        place = user_code.find_place(error)
        if place is None:
            raise
        message = f"{_owner(recipe, place[0])} raised {plugins.reason(error)}"
        raise RlcliError(message, plugins.TRACEBACK) from error


def _owner(recipe: Recipe, file: str) -> str:
    """The part of a recipe whose import path names a file."""
    for kind, name in recipe.part_names:
        module = sys.modules.get(name.partition(":")[0])
        if ":" in name and getattr(module, "__file__", None) == file:
            return f"{kind} {quote(name)}"
    return "code of the recipe"
