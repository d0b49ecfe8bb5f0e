"""Trials of equal structure: one job, one program, and the same results."""

import dataclasses
import json

import pytest
from sweeps import (
    FakeEngine,
    drive,
    group_by_kind,
    list_trials,
    make_sweep,
    read_study,
    read_winner,
    settings,
    skip_disk,
)

from rlcli.runs.locate import change_members, find_trained_together
from rlcli.runs.run_folder import Run
from rlcli.studies.search import trial_source
from rlcli.studies.search.trial_source import choose_size

pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch):
    skip_disk(monkeypatch)
    group_by_kind(monkeypatch)


def members_of(sweep, number):
    return json.loads((sweep.trial(number) / "run.json").read_text()).get("members")


def test_trials_of_equal_structure_are_one_job_with_the_same_results(tmp_path):
    alone, sweep = make_sweep(tmp_path / "a"), make_sweep(tmp_path / "b", together=4)
    drive(alone, FakeEngine())
    engine = FakeEngine()
    assert drive(sweep, engine) == "finished"
    assert list_trials(sweep) == list_trials(alone)
    assert read_winner(sweep) == read_winner(alone)
    kinds = [values["kind"] for _, _, values, _ in list_trials(sweep)]
    expected = [
        [f"{n:04d}" for n in block if kinds[n] == kind]
        for block in (range(4), range(4, 6))
        for kind in "ab"
    ]
    found = {tuple(members_of(sweep, n) or [f"{n:04d}"]) for n in range(6)}
    assert found == {tuple(each) for each in expected if each}
    started = [key for key, _ in engine.started if key.startswith("trial")]
    assert len(started) == len(found) < 6


@pytest.mark.parametrize("kill_after", [0, 1, 2, 3, 5, 8])
def test_a_killed_driver_continues_with_the_same_groups(tmp_path, kill_after):
    undisturbed = make_sweep(tmp_path / "a", together=4)
    drive(undisturbed, FakeEngine())
    sweep = make_sweep(tmp_path / "b", together=4)
    with pytest.raises(KeyboardInterrupt):
        drive(sweep, FakeEngine(kill_after=kill_after))
    engine = FakeEngine()
    assert drive(sweep, engine) == "finished"
    assert list_trials(sweep) == list_trials(undisturbed)
    assert read_winner(sweep) == read_winner(undisturbed)
    for number in range(6):
        assert members_of(sweep, number) == members_of(undisturbed, number)
    keys = [key for key, _ in engine.started]
    assert len(keys) == len({*keys})


@pytest.mark.parametrize("killed_at", [1, 2, 3, 4])
def test_a_driver_that_is_killed_while_it_begins_trials_begins_the_rest(
    tmp_path, killed_at, monkeypatch
):
    undisturbed = make_sweep(tmp_path / "a", together=4)
    drive(undisturbed, FakeEngine())
    sweep = make_sweep(tmp_path / "b", together=4)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        ask, count = trial_source.Trials.ask, []

        def ask_some(study):
            count.append(study)
            if len(count) > killed_at:
                raise KeyboardInterrupt
            return ask(study)

        patch.setattr(trial_source.Trials, "ask", ask_some)
        drive(sweep, FakeEngine())
    assert drive(sweep, FakeEngine()) == "finished"
    assert list_trials(sweep) == list_trials(undisturbed)
    for number in range(6):
        assert members_of(sweep, number) == members_of(undisturbed, number)


SPACE = {"x": {"int": [3, 8]}}
GRID = {"sampler": "grid", "pruner": "asha", "trials": 6, "confirm": 0, "together": 6}


def test_a_pruned_trial_of_a_group_is_not_read_any_more(tmp_path):
    sweep, engine = make_sweep(tmp_path / "s", SPACE, **GRID), FakeEngine()
    assert drive(sweep, engine) == "finished"
    found = read_study(sweep).trials()
    assert [each.state for each in found] == ["complete", *["pruned"] * 5]
    assert all([*each.rungs] == [100] for each in found[1:])
    assert engine.started == [("trials/0000 to trials/0005", "train")]
    assert engine.signals == [(15, None)]  # at the end: their process went on


def test_a_group_goes_on_without_its_pruned_trials_if_that_saves_time(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(trial_source, "_RESTART", 0.0)
    space = {"x": {"int": [3, 6]}}
    sweep = make_sweep(tmp_path / "s", space, **GRID | {"trials": 4, "together": 4})
    engine = FakeEngine()
    assert drive(sweep, engine) == "finished"
    found = read_study(sweep).trials()
    assert [each.state for each in found] == ["complete", *["pruned"] * 3]
    # A process was stopped when two trials of four had been pruned.
    assert engine.started == [
        ("trials/0000 to trials/0003", "train"),
        ("trials/0000", "resume"),
    ]
    assert engine.signals[0] == (15, "trials/0000 to trials/0003")
    assert [members_of(sweep, n) for n in range(4)] == [[f"{n:04d}"] for n in range(4)]


def test_a_process_with_pruned_trials_only_is_stopped(tmp_path):
    sweep = make_sweep(
        tmp_path / "s", SPACE, **GRID | {"trials": 4, "together": 1, "confirm": 0}
    )
    drive(sweep, FakeEngine(room=1))
    changed = settings(**GRID | {"trials": 6, "together": 4})
    dataclasses.replace(sweep, settings=changed).write_settings()
    engine = FakeEngine(room=1)
    assert drive(sweep, engine) == "finished"
    assert engine.signals[0] == (15, "trials/0004 to trials/0005")
    assert [each.state for each in read_study(sweep).trials()][4:] == ["pruned"] * 2


def test_a_crashed_group_is_resumed_and_fails_with_all_of_its_trials(tmp_path):
    sweep = make_sweep(tmp_path / "s", SPACE, **GRID | {"pruner": "none"})
    engine = FakeEngine(codes={"trials/0000 to trials/0005": [137, 137, 137]})
    assert drive(sweep, engine) == "failed"
    assert [verb for _, verb in engine.started] == ["train", "resume", "resume"]
    assert {each.state for each in read_study(sweep).trials()} == {"failed"}


def test_members_change_to_those_that_are_left(tmp_path):
    runs = []
    for name in "abcd":
        folder = tmp_path / name
        folder.mkdir()
        runs.append(Run(folder))
        runs[-1].write_info(members=[*"abcd"])
    for _ in range(2):  # as after a kill
        change_members([runs[1], runs[3]])
        found = [find_trained_together(run) for run in runs]
        assert found == [[runs[0]], [runs[1], runs[3]], [runs[2]], [runs[1], runs[3]]]
        runs[3].write_info(members=[*"abcd"])


@pytest.mark.parametrize(
    ("sampler", "trials", "jobs", "size"),
    [
        ("random", 64, 1, 64),
        ("random", 64, 2, 32),
        ("grid", 5, 2, 3),
        ("grid", 1_000, 2, 64),
        ("tpe", 50, 2, 4),
        ("tpe", 50, 16, 1),
        ("nsga2", 10_000, 2, 16),
    ],
)
def test_all_processes_get_trials_and_samplers_that_learn_few(
    sampler, trials, jobs, size
):
    assert choose_size(settings(sampler=sampler, trials=trials), jobs) == size
