"""The settings of mutation testing: `make mutants` runs it."""

import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
SETTINGS = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text())


@pytest.mark.parametrize("name", SETTINGS["modules"])
def test_the_files_and_tests_of_a_module_exist(name):
    module = SETTINGS["modules"][name]
    assert all([*CHECKOUT.glob(pattern)] for pattern in module["files"])
    assert all((CHECKOUT / path).exists() for path in module["tests"])


def test_equivalent_mutants_change_lines_that_exist_and_have_a_reason():
    for row in SETTINGS["equivalent"]:
        lines = (CHECKOUT / row["file"]).read_text().splitlines()
        assert row["before"] in [line.strip() for line in lines], row
        assert row["reason"], row
        assert row.get("after") != row["before"]
