"""Settings of Sphinx for the documentation site, which `make docs` builds."""

import re
from typing import Any

from sphinx.application import Sphinx

import rlcli

project = "rlcli"
author = "the authors of rlcli"
version = release = rlcli.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
myst_heading_anchors = 4  # links such as `recipes.md#adapters` work, as on GitHub
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 72
suppress_warnings = ["toc.empty_glob"]  # there may be no page in docs/algorithms/
add_module_names = False

html_theme = "furo"
html_title = "rlcli"
html_copy_source = html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"  # prompts and output are not copied

SECTION = re.compile(r"(Args|Returns|Raises|Yields|Attributes):$")
MARKUP = re.compile(r"([|\\]|_\b|(?<!\w)\*(?![a-z]+\*)(?<![a-z]\*))")
EQUATION = re.compile(r"(?<=\n)((?: {4}.*\n+)+)")


def convert_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Converts a docstring from Markdown, which docstrings of rlcli use, to RST.

    It is Markdown with Google's sections: `code`, and equations in indented blocks.
    """
    del app, what, name, obj, options
    start = next((i for i, line in enumerate(lines) if SECTION.match(line)), len(lines))
    text, sections = "\n".join(lines[:start]), "\n".join(lines[start:])
    text = EQUATION.sub(r"\n::\n\n\1\n", text + "\n")
    lines[:] = convert_code(text + "\n" + sections).splitlines()


def convert_code(text: str) -> str:
    """Doubles the backticks of `code`, and escapes what only RST reads as markup."""
    parts = re.split(r"`([^`]+)`", text)
    parts[::2] = [MARKUP.sub(r"\\\1", part) for part in parts[::2]]
    parts[1::2] = ["``" + " ".join(part.split()) + "``" for part in parts[1::2]]
    return "".join(parts)


def setup(app: Sphinx) -> None:
    """Connects the conversion, before that of napoleon."""
    app.connect("autodoc-process-docstring", convert_docstring, priority=400)
