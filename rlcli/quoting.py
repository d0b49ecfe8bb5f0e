r"""Quoting: text of others in another language, with one function for each language.

File names, recipes, metrics and messages of libraries may contain what a terminal, a
shell or Markdown obeys. Each text that leaves rlcli for such a language passes through
its function here; YAML and JSON have `recipe.documents.dump_yaml` and
`runs.files.to_json`, and the module `csv` writes CSV. Imports no rlcli module.
"""

from __future__ import annotations

import html
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

# Control, format, surrogate, line separator, paragraph separator.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_ALLOWED = "\n\t"
# Characters with a meaning in Markdown. `_` within a word, `-` within a line, and
# brackets that no link can follow have none.
_MARKDOWN = re.compile(
    r"[\\`*|<&~]|(?<!\w)_|_(?!\w)|\](?=[(\[:])|^\s*(?:[#>+\[-]|\d+[.)](?=\s|$))"
)


_LATEX = {
    **{character: f"\\{character}" for character in "#$%&_{}"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "−": "$-$",
    "…": r"\ldots{}",
    "γ": r"$\gamma$",
    "λ": r"$\lambda$",
    "ε": r"$\varepsilon$",
}


def printable(text: str) -> str:
    r"""Text for a terminal: control and format characters become escapes.

    They can move the cursor, change the title of the window, and reorder or hide text.
    Newlines and tabs are kept.

    >>> print(printable("\x1b[2J"))
    \x1b[2J
    """
    return _escape(text, lambda code: f"\\x{code:02x}" if code < 256 else _wide(code))


def printable_json(text: str) -> str:
    r"""The same for JSON, whose only escape for code points is `\uXXXX`."""
    return _escape(text, _surrogates)


def quote_rich(text: str, style: str = "") -> Text:
    """Text for Rich: printable, and `[red]` is no markup."""
    from rich.text import Text  # here, to keep `--help` fast

    return Text(printable(text), style)


def quote_shell(word: object) -> str:
    r"""A word for a shell, on one line.

    Control characters need bash, zsh or ksh, which read `$'\n'`.

    >>> print(quote_shell("runs/my run"), quote_shell("a\nb"))
    'runs/my run' $'a\nb'
    """
    text = str(word)
    if isinstance(word, PurePath) and text.startswith("-"):
        text = f"./{text}"  # not an option
    if printable(text) == text and not any(each in text for each in _ALLOWED):
        return shlex.quote(text)
    return f"$'{''.join(map(_escape_for_shell, text))}'"


def join_shell(words: Iterable[object]) -> str:
    """A command for a shell, on one line; a path that begins with `-` gets `./`."""
    return " ".join(map(quote_shell, words))


def quote_slurm(text: str) -> str:
    r"""A value in a line `#SBATCH --option=VALUE`.

    Raises a `ValueError` for control characters: a line cannot contain them.

    >>> print(quote_slurm('my "run"'))
    "my \"run\""
    """
    if "\n" in text or "\t" in text or printable(text) != text:
        raise ValueError("a line of a SLURM script cannot have control characters")
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


def quote_markdown(text: str) -> str:
    r"""Text within a line of Markdown, such as a cell, a title or the item of a list.

    >>> print(quote_markdown("a|b"), quote_markdown("dqn_cartpole"))
    a\|b dqn_cartpole
    """
    line = " ".join(printable(text).split("\n"))
    return _MARKDOWN.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", line)


def quote_html(text: str) -> str:
    """Text, or an attribute in quotes, of an HTML page."""
    return html.escape(printable(text))


def quote_latex(text: str) -> str:
    r"""Text within a line of LaTeX.

    >>> print(quote_latex("dqn_cartpole: 95 %"))
    dqn\_cartpole: 95 \%
    """
    line = " ".join(printable(text).split("\n"))
    return "".join(_LATEX.get(character, character) for character in line)


def quote_python(text: str) -> str:
    """Text within a string of Python, in any quotes but single ones."""
    escaped = text.encode("unicode_escape").decode("ascii")
    return escaped.replace('"', r"\"")


def quote_mathtext(text: str) -> str:
    """Text in a figure of matplotlib, in which `$` would begin a formula."""
    return printable(text).replace("$", r"\$")


def _escape(text: str, escape: Callable[[int], str]) -> str:
    if text.isascii() and text.isprintable():  # the common case
        return text
    return "".join(
        escape(ord(character))
        if unicodedata.category(character) in _UNSAFE and character not in _ALLOWED
        else character
        for character in text
    )


def _escape_for_shell(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character in _ALLOWED:
        return {"\n": "\\n", "\t": "\\t"}[character]
    if printable(character) == character:
        return character
    try:
        data = character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        data = character.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def _wide(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _surrogates(code: int) -> str:
    """A code point as JSON escapes it: beyond 16 bits as two surrogates."""
    units = chr(code).encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
