"""Groups: which runs belong together, and what they are called."""

import pytest
from folders import OTHER_RATE, RESOLVED, write_run

from rlcli.errors import RlcliError
from rlcli.results.groups import find_members, group_members

OTHER_SEEDS = RESOLVED.replace("seed: 0, seeds: 2", "seed: 7, seeds: 5")


def labels(paths, group="recipe"):
    groups = group_members(find_members(paths, []), group)
    return {each.label: [run.folder.name for run in each.members] for each in groups}


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "dqn" / "a", name="base")
    write_run(tmp_path / "dqn" / "b", name="base", resolved=OTHER_SEEDS)
    write_run(tmp_path / "dqn" / "c", name="fast", resolved=OTHER_RATE)
    write_run(tmp_path / "ppo" / "d", name="base", recipe="ppo", tags=["x", "y"])
    return tmp_path


def test_runs_that_differ_in_seeds_only_are_one_group(runs):
    assert labels([runs]) == {
        "dqn_cartpole learning_rate=0.0005": ["a", "b"],
        "dqn_cartpole learning_rate=0.01": ["c"],
        "ppo": ["d"],
    }
    assert labels([runs / "dqn" / "a", runs / "ppo"]) == {
        "dqn_cartpole": ["a"],
        "ppo": ["d"],
    }


def test_runs_are_grouped_by_name_option_field_or_not_at_all(runs):
    assert labels([runs], "name") == {"base": ["a", "b", "d"], "fast": ["c"]}
    by_rate = labels([runs], "optimizer.learning_rate")
    assert by_rate == {"0.0005": ["a", "b", "d"], "0.01": ["c"]}
    assert len(labels([runs], "run")) == 4
    assert labels([runs / "ppo"], "tags") == {"x, y": ["d"]}


def test_values_that_begin_alike_are_different_groups(tmp_path):
    names = [f"an_experiment_with_a_long_name_{rate}" for rate in (0.001, 0.01)]
    for name in names:
        write_run(tmp_path / "dqn" / name, name=name)
    assert labels([tmp_path], "name") == {name: [name] for name in names}


def test_a_run_is_a_member_once(runs):
    members = find_members([runs, runs / "dqn", runs / "dqn" / "a"], [])
    assert len(members) == 4


def test_smoke_runs_among_others_are_left_out_with_a_note(runs):
    write_run(runs / "dqn" / "e", smoke=True)
    notes = []
    assert len(find_members(runs / "dqn", notes)) == 3
    (note,) = notes
    assert note.startswith(f"1 smoke run in `{runs / 'dqn'}` left out")
    assert len(find_members(runs / "dqn" / "e", notes)) == len(notes) == 1


def test_a_run_with_lost_or_damaged_files_is_a_member(tmp_path):
    broken = write_run(tmp_path / "dqn" / "broken")
    (broken / "run.json").write_text("{")
    (broken / "resolved.yaml").unlink()
    assert labels(tmp_path) == {"dqn": ["broken"]}


def test_what_is_no_run_or_has_no_group_is_an_error(runs):
    with pytest.raises(RlcliError, match="no file or folder"):
        find_members([runs / "nothing"], [])
    with pytest.raises(RlcliError, match="no runs are given"):
        find_members([], [])
    with pytest.raises(RlcliError, match=r"has no `updater\.nam`"):
        labels([runs], "updater.nam")
    write_run(runs / "dqn" / "unnamed")
    with pytest.raises(RlcliError, match=r"`name` of run .* is empty") as caught:
        labels([runs], "name")
    assert "--name" in caught.value.hint


def test_frozen_seeds_are_noted_and_included(tmp_path):
    run = write_run(tmp_path / "a", frozen={"1": "loss", "3": "loss"})
    notes = []
    assert len(find_members(run, notes)) == 1
    assert notes == [f"`{run}`: seeds 1, 3 frozen (NaN), included"]


def test_runs_without_a_recipe_repeat_no_other(tmp_path):
    for name in ("a", "b"):
        (write_run(tmp_path / name) / "resolved.yaml").unlink()
    assert [*labels(tmp_path)] == ["dqn_cartpole (a)", "dqn_cartpole (b)"]


def write_cell(folder, label, study="first", **values):
    values = {key.replace("_", "."): text for key, text in values.items()}
    write_run(folder / study / label, cell={"label": label, "values": values})


def test_cells_of_a_study_are_grouped_over_environments(tmp_path):
    for place in ("cart", "acro"):
        for rate in ("1", "2"):
            label = f"{place}/rate={rate}"
            write_cell(tmp_path, label, environment=place, optimizer_rate=rate)
    by_rate = {"dqn_cartpole rate=1": ["rate=1"] * 2}
    by_rate |= {"dqn_cartpole rate=2": ["rate=2"] * 2}
    assert labels([tmp_path], None) == labels([tmp_path], "cell") == by_rate
    write_cell(tmp_path, "b", "second", recipe="large")
    assert [*labels([tmp_path], "cell")] == [
        *(f"first: {label}" for label in by_rate),
        "second: large",
    ]
    assert [*labels([tmp_path / "second"], None)] == ["large"]


def test_groups_that_differ_have_different_labels(tmp_path):
    for place in ("one", "two"):
        for key in ("optimizer.eps", "policy.eps"):
            study = f"{place}/study"
            write_cell(tmp_path, key, study, **{key: "0.1"})
            (tmp_path / study / key / "resolved.yaml").unlink()
    first = labels([tmp_path / "one"], "cell")
    assert first == {
        f"dqn_cartpole {key}=0.1": [key] for key in ("optimizer.eps", "policy.eps")
    }
    assert [*labels([tmp_path], "cell")] == [
        f"{tmp_path / place / 'study'}: {label}"
        for place in ("one", "two")
        for label in first
    ]
    for group in ("recipe", "run"):
        assert len(labels([tmp_path], group)) == 4


@pytest.mark.parametrize(
    "cell",
    [
        3,
        {"label": "", "values": {}},
        {"label": 3, "values": {}},
        {"label": "a", "values": 3},
    ],
)
def test_a_run_without_a_study_has_no_cell(cell, tmp_path):
    write_run(tmp_path / "a", cell=cell)
    assert [*labels([tmp_path], None)] == ["dqn_cartpole"]
    with pytest.raises(RlcliError, match="is no cell of a study"):
        labels([tmp_path], "cell")
