"""Quoting: each language reads what was written, and obeys nothing of it."""

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from rlcli import quoting
from rlcli.quoting import (
    join_shell,
    printable,
    quote_html,
    quote_markdown,
    quote_mathtext,
    quote_python,
    quote_rich,
    quote_shell,
    quote_slurm,
)

EVIL = (
    *(
        "my run",
        "a\nb",
        "$(touch x)",
        "`touch x`",
        "; touch x",
        "'",
        '"',
        "\\",
        "#",
        "-x",
    ),
    *("\x1b[2J", "é 日本 🙂", "\udcff", "\t", "$HOME", "*", "~", "!!", "a|b", "\r"),
    *("", "[red]x[/red]", "<script>alert(1)</script>", "&amp;", "**a**", "_a_", "%a"),
)
PACKAGE = Path(quoting.__file__).parent


@pytest.mark.parametrize("word", EVIL)
def test_a_shell_reads_the_word_as_it_was(word):
    script = f"printf %s {quote_shell(word)}"
    assert "\n" not in script and printable(script) == script
    found = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert found.stdout == word.encode("utf-8", "surrogateescape")


def test_a_path_that_begins_with_a_dash_is_no_option():
    assert quote_shell(Path("-x")) == "./-x"
    assert join_shell(["eval", Path("-a b"), "--trust"]) == "eval './-a b' --trust"


@pytest.mark.parametrize("text", [each for each in EVIL if printable(each) == each])
def test_slurm_reads_the_value_as_it_was(text):
    """`sbatch` unescapes `\\` and `"` in quotes, as `shlex` in POSIX mode does."""
    if "\n" in text or "\t" in text:
        with pytest.raises(ValueError, match="control characters"):
            quote_slurm(text)
    else:
        assert shlex.split(f"--output={quote_slurm(text)}") == [f"--output={text}"]


@pytest.mark.parametrize("text", ["\n", "\x1b", "a\tb", "\udcff"])
def test_slurm_gets_no_control_characters(text):
    with pytest.raises(ValueError, match="control characters"):
        quote_slurm(text)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("a|b", r"a\|b"),
        ("dqn_cartpole, updater.name=ppo", "dqn_cartpole, updater.name=ppo"),
        ("_a_ *b*", r"\_a\_ \*b\*"),
        ("<script>", r"\<script>"),
        ("[x](http://y)", r"\[x\](http://y)"),
        ("# title", r"\# title"),
        ("1.5 > 1", "1.5 > 1"),
        ("1. item", r"1\. item"),
        ("- item\nnext | cell", r"\- item next \| cell"),
        ("`code` \\", "\\`code\\` \\\\"),
        ("481 [472, 490]", "481 [472, 490]"),
        ("see [x][1]", r"see [x\][1]"),
        ("\x1b[2J", r"\\x1b[2J"),
    ],
)
def test_markdown_shows_the_text_as_it_was(text, quoted):
    assert quote_markdown(text) == quoted


def test_markdown_is_rendered_as_the_text():
    """By another implementation of Markdown."""
    commonmark = pytest.importorskip("markdown_it")
    for text in EVIL:
        line = printable(text).replace("\n", " ").strip()
        for start in ("- ", "**", ""):
            source = start + quote_markdown(text) + ("**" if start == "**" else "")
            page = commonmark.MarkdownIt("commonmark").render(source)
            shown = re.sub(r"</?(?:p|ul|li|strong)>|\n", "", page)
            assert (
                shown.strip().replace("&quot;", '"')
                == (
                    line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
                )
                or line == ""
            )


def test_html_and_rich_and_python_show_the_text_as_it_was():
    assert quote_html("<b a='\"'>\x1b") == "&lt;b a=&#x27;&quot;&#x27;&gt;\\x1b"
    for text in EVIL:
        assert quote_rich(text).plain == printable(text)
        assert ast.literal_eval(f'"""{quote_python(text)}"""') == text


def test_a_dollar_begins_no_formula_in_a_figure():
    mathtext = pytest.importorskip("matplotlib.mathtext")
    assert quote_mathtext("a$b^$\x1b") == r"a\$b^\$\x1b"
    parse = mathtext.MathTextParser("path").parse
    parse(quote_mathtext("cost: $x_$"))


def _commands(tree):
    """The f-strings that contain a command of rlcli in backticks, and their values."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        is_command = False
        for part in node.values:
            if isinstance(part, ast.Constant):
                before = part.value.rpartition("`")
                opened = is_command if not before[1] else before[2].startswith("rlcli ")
                is_command = opened
            elif is_command:
                yield node.lineno, ast.unparse(part.value)


@pytest.mark.slow
def test_a_command_to_copy_is_quoted_for_a_shell():
    """Every value in `rlcli …` of a message is quoted, or one of rlcli's own words."""
    own = ("registry.KINDS[kind]", "kind", "kinds", "shown", "verb")
    problems = [
        (str(path.relative_to(PACKAGE)), line, value)
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, value in _commands(ast.parse(path.read_text("utf-8")))
        if not value.startswith(("quote_shell(", "join_shell(", "shell_path("))
        and value not in own
    ]
    assert problems == []


def test_the_languages_are_quoted_in_one_module_only():
    """No module calls the functions of libraries for it."""
    names = r"\bshlex\.(?:quote|join)|\bhtml\.escape|rich\.markup|r\"\\\$\""
    found = [
        path.name
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "quoting.py" and re.search(names, path.read_text("utf-8"))
    ]
    assert found == []
