"""Terminal: escapes text so that it is safe to print. Imports no rlcli module.

File names, recipes and the metadata of plug-ins may contain escape sequences that move
the cursor, change the title of the window or hide text. Unicode's format characters
(bidirectional overrides, zero-width joiners) can reorder or hide text as well.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

# Control, format, surrogate, line separator, paragraph separator.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_ALLOWED = "\n\t"


def printable(text: str) -> str:
    r"""The text with control and format characters written as escapes.

    Newlines and tabs are kept.

    >>> print(printable("\x1b[2J"))
    \x1b[2J
    """
    return _escape(text, lambda code: f"\\x{code:02x}" if code < 256 else _wide(code))


def printable_json(text: str) -> str:
    r"""The same for JSON, whose only escape for code points is `\uXXXX`."""
    return _escape(text, _surrogates)


def _escape(text: str, escape: Callable[[int], str]) -> str:
    if text.isascii() and text.isprintable():  # the common case
        return text
    return "".join(
        escape(ord(character))
        if unicodedata.category(character) in _UNSAFE and character not in _ALLOWED
        else character
        for character in text
    )


def _wide(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _surrogates(code: int) -> str:
    """A code point as JSON escapes it: beyond 16 bits as two surrogates."""
    units = chr(code).encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
