"""Errors: `RlcliError`, exit codes and hints. Imports only quoting."""

import difflib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from rlcli.quoting import printable, quote_shell

OK = 0
USER_ERROR = 1  # an error in a recipe, option, file or checkpoint; or all seeds failed
USAGE = 2  # unknown command, option or argument
SOME_SEEDS_FROZEN = 3  # the run has ended, but some of its seeds are frozen
OUT_OF_TIME = 75  # --max-time reached, after a checkpoint
HUNG_UP = 129  # SIGHUP, after a checkpoint
INTERRUPTED = 130  # Ctrl-C, after a checkpoint
TERMINATED = 143  # SIGTERM, after a checkpoint

EXIT_CODES: Mapping[str, int] = {  # by the status in `run.json`
    "finished": OK,
    "stopped": OK,  # reached the return in `train.stop`
    "failed": USER_ERROR,
    "out_of_time": OUT_OF_TIME,
    "hung_up": HUNG_UP,
    "interrupted": INTERRUPTED,
    "terminated": TERMINATED,
}
_MAX_LISTED = 100  # names in a hint
_LONGEST = 60  # characters of a value in a message
_LONGEST_QUOTE = 200  # characters in backticks, such as a path
_LONGEST_MESSAGE = 700
_LONGEST_HINT = 6_000  # a hint may be a command with a path, which has to be complete
_typed: dict[str, str] = {}  # absolute paths, and what the user has typed for them
_MAX_TYPED = 100


class RlcliError(Exception):
    """An error that the user can fix: a message and a hint.

    The message is one printable line, and each piece of it in backticks is short,
    whatever file, option or exception it quotes.

    `rlcli.cli.main` catches it, prints both and exits with `code`. An error that
    `is_located` begins with the place of a recipe that it is about.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        code: int = USER_ERROR,
        is_located: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = fit_line(paths_as_typed(message))
        self.hint = shorten(printable(paths_as_typed(hint)), _LONGEST_HINT)
        self.code = code
        self.is_located = is_located

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


def check_platform() -> None:
    """Refuses operating systems on which rlcli cannot run."""
    if sys.platform in ("linux", "darwin"):
        return
    if sys.platform in ("win32", "cygwin"):
        raise RlcliError(
            "rlcli does not run natively on Windows, but in the Windows Subsystem for "
            "Linux (WSL)",
            "install WSL: https://learn.microsoft.com/windows/wsl/install",
        )
    raise RlcliError(f"rlcli runs on Linux and macOS, not on {quote(sys.platform)}")


def shorten(text: str, longest: int = _LONGEST) -> str:
    """Truncates a text to `longest` characters, with an ellipsis at the end."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def fit_line(text: str) -> str:
    """A text of any length as one printable line for a message."""
    line = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    if len(line) > _LONGEST_QUOTE:
        line = re.sub(
            r"(?<=`)[^`]+(?=`)",
            lambda match: _shorten_middle(match[0], _LONGEST_QUOTE),
            line,
        )
    return _shorten_middle(line, _LONGEST_MESSAGE)


def _shorten_middle(text: str, longest: int) -> str:
    """Keeps the end too: that of a path is its name."""
    if len(text) <= longest:
        return text
    end = longest // 3
    return f"{text[: longest - end - 1]}…{text[-end:]}"


def quote(value: object, longest: int | None = None) -> str:
    """Formats user input for a message: one short line in backticks.

    Its end names the file of a path, so a path may be longer than other values.
    """
    if longest is None:
        longest = _LONGEST_QUOTE if isinstance(value, os.PathLike) else _LONGEST
    try:
        text = printable(shorten(as_typed(str(value)), longest))
    except ValueError:  # Python does not print an integer of thousands of digits
        text = "a huge number"
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return f"`{shorten(text, longest)}`"


def remember_path(full: str, typed: str) -> None:
    """Remembers how the user has typed a path, for messages."""
    _typed.pop(full, None)
    _typed[full] = typed
    if len(_typed) > _MAX_TYPED:
        del _typed[next(iter(_typed))]


def as_typed(path: str) -> str:
    """An absolute path as the user has typed it, a path above it, or one beside it."""
    above = path if _typed else ""
    while above:
        if (typed := _typed.get(above)) is not None:
            below = path[len(above) :]
            return below.lstrip("/") or typed if typed == "." else typed + below
        above = above.rpartition("/")[0]
    folder, name = os.path.split(path)
    for full, typed in _typed.items():
        if os.path.dirname(full) == folder:
            return os.path.join(os.path.dirname(typed), name)
    return path


def shell_path(path: str | Path) -> str:
    """A path as the user has typed it, as a word of a command in a message.

    Quoted first, an absolute path keeps quotes that only the folders above need.
    """
    return quote_shell(Path(as_typed(str(path))))


def paths_as_typed(text: str) -> str:
    """A text with the paths in it as the user has typed them."""
    for full in sorted(_typed, key=len, reverse=True):
        if full in text:
            pattern = rf"(?<![\w./-]){re.escape(full)}(?![\w.-])(?:/[^\s`'\":,;)]+)?"
            text = re.sub(pattern, lambda match: as_typed(match[0]), text)
    return text


def suggest(name: str, names: Iterable[str], prefix: str = "") -> str:
    """A hint with the known name most similar to `name`, or else with all known names.

    `prefix` is written in front of each name and does not count.
    """
    names = sorted(names)
    if not names:
        return "there are none"
    if similar := suggest_similar(name, names, prefix):
        return similar
    more = f", and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    quoted = (quote(prefix + each, _LONGEST_QUOTE) for each in names[:_MAX_LISTED])
    listing = ", ".join(quoted)
    return f"choose from {listing}{more}"


def suggest_similar(name: str, names: Iterable[str], prefix: str = "") -> str:
    """A hint with the known name most similar to `name`; "" if none is similar.

    Similarity compares the spelling, and the words in any order and case without a
    version: other libraries call `bsuite/Catch` `Catch-bsuite`.

    >>> suggest_similar("learning_rat", ["learning_rate", "clip_norm"])
    'did you mean `learning_rate`?'
    """
    name = name[:_LONGEST]  # the comparison is quadratic in the length
    found = max(((_similarity(name, each), each) for each in names), default=(0.0, ""))
    name = quote(prefix + found[1], _LONGEST_QUOTE)
    return f"did you mean {name}?" if found[0] >= 0.6 else ""


def _similarity(name: str, known_name: str) -> float:
    """How similar two names are, from 0 to 1."""
    pairs = ((known_name, name), (_sorted_words(known_name), _sorted_words(name)))
    return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)


def _sorted_words(name: str) -> str:
    """The words of a name in alphabetical order, without a version."""
    words = re.findall(r"[^\W_]+", name.lower())
    return " ".join(sorted(word for word in words if not re.fullmatch(r"v\d+", word)))
