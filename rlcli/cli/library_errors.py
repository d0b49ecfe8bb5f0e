"""Library errors: environment variables that JAX or matplotlib cannot use."""

import os
import re
import traceback
from collections.abc import Iterator, Sequence

from rlcli.errors import RlcliError, quote

# By library: its modules that read variables, and the names of these.
_READERS = {
    "JAX": (r"jax\._src\.(?:xla_bridge|config)", r"JAX_\w+"),
    "matplotlib": (r"matplotlib(?:\.rcsetup)?", r"MPL\w+"),
}
_LONGEST = 200  # characters of the library's message


def explain_variables(error: BaseException) -> RlcliError | None:
    """The error for variables that a library could not use; None for other errors."""
    modules = {*_modules(error)}
    for library, (reader, variable) in _READERS.items():
        names = [name for name in os.environ if re.fullmatch(variable, name)]
        if names and any(re.fullmatch(reader, module) for module in modules):
            settings = ", ".join(
                quote(f"{name}={os.environ[name]}")
                for name in sorted(_variables_in(str(error), names))
            )
            reason = quote(error, _LONGEST)[1:-1] or type(error).__name__
            explained = RlcliError(
                f"{library} cannot use the environment variable {settings}: {reason}",
                "correct its value, or unset it",
            )
            explained.__cause__ = error
            return explained
    return None


def _variables_in(message: str, names: Sequence[str]) -> Sequence[str]:
    """The variables that an error names, else those that select what is used."""
    named = [name for name in names if name.lower() in message.lower()]
    selecting = [name for name in names if name.startswith(("JAX_PLATFORM", "MPL"))]
    return named or selecting or names


def _modules(error: BaseException | None) -> Iterator[str]:
    """The modules in which an error, or a cause of it, was raised."""
    while error is not None:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if frames:
            yield str(frames[-1].f_globals.get("__name__"))
        error = error.__cause__ or error.__context__
