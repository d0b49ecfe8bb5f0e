"""The files of a population, and the history of a member."""

import pytest

from rlcli.errors import RlcliError
from rlcli.runs.population_rounds import (
    PopulationSettings,
    Round,
    RoundEntry,
    SearchedOption,
    Stage,
    find_lineage,
    read_rounds,
    read_settings,
    write_rounds,
    write_settings,
)

ROUNDS = [
    Round(
        1,
        100,
        {
            "a": RoundEntry(1.0, None, {"x": 1.0}),
            "b": RoundEntry(3.0, None, {"x": 2.0}),
            "c": RoundEntry(None, "b", {"x": 2.4}),
        },
    ),
    Round(
        2,
        200,
        {
            "a": RoundEntry(1.0, "c", {"x": 1.92}),
            "b": RoundEntry(3.0, None, {"x": 2.0}),
            "c": RoundEntry(4.0, None, {"x": 2.4}),
        },
    ),
]
FIRST = {"a": {"x": 1.0}, "b": {"x": 2.0}, "c": {"x": 3.0}}


def test_settings_and_rounds_are_read_as_they_were_written(tmp_path):
    option = SearchedOption("x", ("y", "z"), 0.1, 1.0, True)
    settings = PopulationSettings(("a", "b"), 3, 2, (option,))
    write_settings(tmp_path, settings)
    assert read_settings(tmp_path) == settings
    assert read_rounds(tmp_path, "abc", ["x"]) == []
    write_rounds(tmp_path, ROUNDS)
    assert read_rounds(tmp_path, "abc", ["x"]) == ROUNDS


@pytest.mark.parametrize(
    ("member", "lineage"),
    [
        ("a", [(0, "b", 2.0), (100, "c", 2.4), (200, "a", 1.92)]),
        ("b", [(0, "b", 2.0)]),
        ("c", [(0, "b", 2.0), (100, "c", 2.4)]),
    ],
)
def test_the_lineage_of_a_member_leads_to_its_first_ancestor(member, lineage):
    expected = [Stage(step, name, {"x": x}) for step, name, x in lineage]
    assert find_lineage(ROUNDS, member, FIRST) == expected


def test_damaged_files_are_named(tmp_path):
    with pytest.raises(RlcliError, match=r"population.json` is damaged, or missing"):
        read_settings(tmp_path)
    for text in ("?", "{}", '{"round": 1, "step": 2, "members": {"a": {}}}'):
        (tmp_path / "rounds.jsonl").write_text(f"{text}\n")
        with pytest.raises(RlcliError, match=r"rounds.jsonl` is damaged"):
            read_rounds(tmp_path, "abc", ["x"])
