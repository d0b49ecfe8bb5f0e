"""What `make generate` writes: as the parts, the recipes and the pages are now."""

import runpy
from pathlib import Path

import pytest

GENERATE = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "generate.py"))
FILES = GENERATE["files"]()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_generated_file_is_up_to_date(path):
    text = path.read_text(encoding="utf-8")
    assert text == FILES[path], "run `make generate`"


@pytest.mark.parametrize("header", ["| term |", "| term | b |"])
def test_only_rows_of_the_table_are_replaced(tmp_path, header):
    page = tmp_path / "page.md"
    page.write_text("# A\n\n| term | b |\n|---|---|\n| old | 1 |\n\nText.\n")
    expected = "# A\n\n| term | b |\n|---|---|\n| new | 2 |\n\nText.\n"
    assert GENERATE["replace_rows"](page, header, ["| new | 2 |"]) == expected


def test_terms_are_sorted_without_their_links():
    rows = ["| [Zeta](a.md) | |", "| ε-greedy | |", "| [advantage](b.md) | |"]
    assert sorted(rows, key=GENERATE["alphabetical"]) == [rows[2], rows[1], rows[0]]
