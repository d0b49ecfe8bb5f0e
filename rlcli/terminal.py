"""Terminal: text that is safe to print. Imports nothing of ours.

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
    return _escaped(text, lambda code: f"\\x{code:02x}" if code < 256 else _wide(code))


def printable_json(text: str) -> str:
    r"""The same for JSON, whose strings know no escape but `\uXXXX`."""
    return _escaped(text, _pair)


def _escaped(text: str, escape: Callable[[int], str]) -> str:
    if text.isascii() and text.isprintable():  # most texts
        return text
    return "".join(
        escape(ord(each))
        if unicodedata.category(each) in _UNSAFE and each not in _ALLOWED
        else each
        for each in text
    )


def _wide(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _pair(code: int) -> str:
    """A code point as JSON writes it: beyond 16 bits as two surrogates."""
    units = chr(code).encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
