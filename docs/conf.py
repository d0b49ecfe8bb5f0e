"""Settings of Sphinx for the documentation site, which `make docs` builds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import rlcli

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

project = "rlcli"
version = release = rlcli.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # links such as `recipes.md#adapters` work, as on GitHub
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 72
add_module_names = False

html_theme = "furo"
html_math_renderer = "mathml"
html_title = "rlcli"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = html_show_copyright = False
copybutton_exclude = ".linenos, .gp, .go"  # prompts and output are not copied

SECTION = re.compile(r"(Args|Returns|Raises|Yields|Attributes):$")
EQUATION = re.compile(r"(?<=\n)((?: {4}.*\n+)+)")
MARKUP = re.compile(r"([|\\]|_\b|(?<!\w)\*(?!\w+\*))")  # `*word*` is Markdown, too

THIN_SPACE = '<mspace width="0.17em"/>'


def convert_docstring(
    app: Sphinx | None, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Converts a docstring of rlcli in place, for `sphinx.ext.napoleon`.

    Docstrings are Markdown with the sections of Google's style. Indented blocks before
    the first section are equations or examples, which keep their layout.
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


def write_formula(translator: HTML5Translator, node: Element) -> None:
    """Writes a formula as MathML: pages need no script, and none of another site."""
    from docutils.nodes import SkipNode, math_block
    from docutils.utils.math.latex2mathml import tex2mathml

    tex = re.sub(r"^(?=[\^_])", "{}", node.astext().strip())  # an empty base
    mathml = tex2mathml(tex, as_block=isinstance(node, math_block))
    # A thin space between a function and an argument without parentheses: log p.
    mathml = re.sub(r"(&ApplyFunction;</mo>)(?!\s*<mo)", rf"\1{THIN_SPACE}", mathml)
    translator.body.append(mathml)
    raise SkipNode


def setup(app: Sphinx) -> None:
    """Connects the conversions: that of docstrings before that of napoleon."""
    app.connect("autodoc-process-docstring", convert_docstring, priority=400)
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
