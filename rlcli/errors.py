"""Errors: what a user can mend, and the exit codes. Imports nothing of ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

OK = 0
MENDABLE = 1  # recipe, option, file or checkpoint; or no seed left
USAGE = 2  # no such verb, option or argument
OUT_OF_TIME = 75  # --max-time reached, after a checkpoint
INTERRUPTED = 130  # Ctrl-C, after a checkpoint
TERMINATED = 143  # SIGTERM, after a checkpoint


class RlcliError(Exception):
    """Something the user can mend: what, where, and how.

    Raised where it is known, caught in `rlcli.cli.main`, which prints both and exits
    with `code`.
    """

    def __init__(self, message: str, hint: str = "", *, code: int = MENDABLE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names what `name` may have been meant to be, or lists what there is.

    >>> nearest("learning_rat", ["learning_rate", "clip_norm"])
    'did you mean `learning_rate`?'
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    if not known:
        return "there is none"
    return "there is " + ", ".join(f"`{each}`" for each in known)
