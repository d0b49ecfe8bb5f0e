"""Trials begin, are pruned and confirmed, and continue after a crash."""

import dataclasses
import math
import signal
import threading

import pytest
from sweeps import (
    FakeEngine,
    drive,
    list_trials,
    make_sweep,
    read_study,
    read_winner,
    skip_disk,
)

from rlcli.runs.durations import Deadline
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import find_study
from rlcli.studies.search.layout import open_sweep
from rlcli.studies.search.summary import find_sweep_status, show_sweep

optuna = pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch):
    skip_disk(monkeypatch)


def test_the_best_trials_are_confirmed_with_seeds_that_no_trial_had(tmp_path):
    sweep, engine = make_sweep(tmp_path / "s"), FakeEngine()
    assert drive(sweep, engine) == "finished"
    found = read_study(sweep).trials()
    assert [each.state for each in found] == ["complete"] * 6
    for each in found:  # the mean of seeds 0 and 1
        expected = 3 * (10 - abs(each.values["x"] - 3)) + 0.0005
        assert each.value == pytest.approx(expected)
        assert sorted(each.rungs) == [100, 200, 300]
    best = sorted(found, key=lambda each: (-each.value, each.number))[:2]
    result = sweep.read_result()
    assert {each["trial"] for each in result["confirmed"]} == {
        each.number for each in best
    }
    assert result["winner"]["trial"] == best[0].number
    assert result["winner"]["run"] == f"confirm/{best[0].number:04d}"
    # A trial was chosen by its seeds: those of its confirmation are another group.
    cells = {cell.label: cell for cell in find_study(sweep.folder).cells}
    trial, other = (cells[f"{f}/{best[0].number:04d}"] for f in ("trials", "confirm"))
    assert dict(other.values) == {**trial.values, "confirmed": "yes"}
    base = 3 * (10 - abs(best[0].values["x"] - 3))
    assert result["winner"]["seeds"] == pytest.approx(
        [base + seed / 1000 for seed in (2, 3, 4)]
    )
    assert engine.started[:6] == [(f"trials/{n:04d}", "train") for n in range(6)]


def test_a_run_that_stops_at_the_return_of_its_recipe_is_complete(tmp_path):
    sweep = make_sweep(tmp_path / "s")
    assert drive(sweep, FakeEngine(end="stopped")) == "finished"
    assert {state for _, state, *_ in list_trials(sweep)} == {"complete"}


def test_without_confirmation_the_best_trial_is_the_winner(tmp_path):
    sweep = make_sweep(tmp_path / "s", confirm=0)
    assert drive(sweep, FakeEngine()) == "finished"
    best = min(read_study(sweep).trials(), key=lambda each: -each.value)
    assert sweep.read_result()["winner"]["run"] == f"trials/{best.number:04d}"


@pytest.mark.parametrize("kill_after", [0, 1, 2, 3, 5, 8, 11])
def test_a_killed_driver_continues_to_the_same_result(tmp_path, kill_after):
    undisturbed = make_sweep(tmp_path / "a")
    drive(undisturbed, FakeEngine())
    sweep = make_sweep(tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        drive(sweep, FakeEngine(kill_after=kill_after))
    assert find_sweep_status(sweep) == "killed"
    engine = FakeEngine()
    assert drive(sweep, engine) == "finished"
    assert list_trials(sweep) == list_trials(undisturbed)
    assert read_winner(sweep) == read_winner(undisturbed)
    keys = [key for key, _ in engine.started]
    assert len(keys) == len({*keys})


def test_the_time_left_counts_the_trials_of_earlier_processes(tmp_path):
    sweep = make_sweep(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        drive(sweep, FakeEngine(room=1, kill_after=4))
    assert [state for _, state, *_ in list_trials(sweep)] == ["complete", "running"]
    found = []
    drive(sweep, FakeEngine(room=1), report=found.append)
    (first,) = (each.seconds for each in read_study(sweep).trials()[:1])
    assert found[0].seconds == pytest.approx(5 * first)
    assert found[-1].seconds is None


def test_half_a_line_in_the_journal_is_removed(tmp_path):
    sweep = make_sweep(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        drive(sweep, FakeEngine(kill_after=4))
    with sweep.journal.open("ab") as file:
        file.write(b'{"op_code":')
    assert drive(sweep, FakeEngine()) == "finished"
    assert [number for number, *_ in list_trials(sweep)] == [*range(6)]


def test_a_crashed_process_is_resumed_three_times_at_most(tmp_path):
    sweep = make_sweep(tmp_path / "s", confirm=1)
    engine = FakeEngine(codes={"trials/0001": [137, 137], "trials/0002": [137] * 3})
    assert drive(sweep, engine) == "finished"
    found = read_study(sweep).trials()
    assert [each.state for each in found].count("complete") == 5
    assert found[2].state == "failed"
    assert "its process ended 3 times with exit code 137" in found[2].notes["reason"]
    verbs = [verb for key, verb in engine.started if key == "trials/0001"]
    assert verbs == ["train", "resume", "resume"]


def test_a_trial_that_is_refused_fails_without_another_attempt(tmp_path):
    sweep = make_sweep(tmp_path / "s", trials=2)
    engine = FakeEngine(codes={"trials/0000": [1]})
    assert drive(sweep, engine) == "finished"
    failed = read_study(sweep).trials()[0]
    assert (failed.state, failed.notes["reason"]) == ("failed", "it does not work")
    assert engine.started.count(("trials/0000", "train")) == 1


def test_a_trial_whose_metrics_are_damaged_fails_and_the_others_go_on(tmp_path):
    sweep = make_sweep(tmp_path / "s", trials=3)

    class Damaging(FakeEngine):
        def collect(self):
            ends = super().collect()
            for end in ends:
                if end.key == "trials/0001":
                    (sweep.trial(1) / "metrics.jsonl").write_text("?\n")
            return ends

    assert drive(sweep, Damaging()) == "finished"
    found = read_study(sweep).trials()
    assert [each.state for each in found] == ["complete", "failed", "complete"]
    assert "not a row of metrics" in found[1].notes["reason"]


def test_a_sweep_without_results_has_failed(tmp_path):
    sweep = make_sweep(tmp_path / "s", trials=2)
    engine = FakeEngine(codes={"trials/0000": [1], "trials/0001": [2]})
    assert drive(sweep, engine) == "failed"
    assert show_sweep(sweep.folder)["winner"] is None


def test_asha_stops_bad_trials_after_the_first_rung(tmp_path):
    space = {"x": {"int": [3, 8]}}
    sweep = make_sweep(
        tmp_path / "s", space, sampler="grid", pruner="asha", trials=6, confirm=1
    )
    engine = FakeEngine(room=1)
    assert drive(sweep, engine) == "finished"
    found = read_study(sweep).trials()
    # The first is the best one: all that follow are worse at their first rung.
    assert [each.state for each in found] == ["complete", *["pruned"] * 5]
    assert all(100 in each.rungs and 300 not in each.rungs for each in found[1:])
    assert all(number == signal.SIGTERM for number, _ in engine.signals)
    assert {key for _, key in engine.signals} >= {
        f"trials/{n:04d}" for n in range(1, 6)
    }


def test_a_trial_that_was_being_pruned_does_not_continue(tmp_path, monkeypatch):
    space = {"x": {"int": [3, 8]}}
    sweep = make_sweep(tmp_path / "s", space, sampler="grid", pruner="asha", trials=3)
    tell = optuna.Study.tell

    def kill(study, number, value, state):
        if state.name == "PRUNED":
            raise KeyboardInterrupt  # between the decision and its record
        tell(study, number, value, state)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(optuna.Study, "tell", kill)
        drive(sweep, FakeEngine(room=1))
    assert read_study(sweep).trials()[1].state == "running"
    engine = FakeEngine(room=1)
    assert drive(sweep, engine) == "finished"
    assert read_study(sweep).trials()[1].state == "pruned"
    assert not [key for key, _ in engine.started if key == "trials/0001"]


def test_the_median_stops_trials_that_are_worse_than_half_of_the_others(tmp_path):
    space = {"x": {"int": [0, 9]}}
    sweep = make_sweep(
        tmp_path / "s", space, sampler="grid", pruner="median", trials=10, confirm=1
    )
    drive(sweep, FakeEngine(room=1))
    states = [each.state for each in read_study(sweep).trials()]
    assert states == ["complete"] * 5 + ["pruned"] * 5


def test_steps_to_a_return_are_minimized_and_may_never_be_made(tmp_path):
    space = {"x": {"int": [3, 5]}}
    sweep = make_sweep(
        tmp_path / "s", space, sampler="grid", objective="steps_to:19", trials=3
    )
    assert drive(sweep, FakeEngine()) == "finished"
    values = [each.value for each in read_study(sweep).trials()]
    assert values == [200, 300, 300]  # 20 at step 200, 27 at 300, 24 at 300
    sweep = make_sweep(
        tmp_path / "t", space, sampler="grid", objective="steps_to:31", trials=3
    )
    assert drive(sweep, FakeEngine()) == "failed"
    assert [each.value for each in read_study(sweep).trials()] == [math.inf] * 3


def test_a_frozen_seed_counts_as_the_worst(tmp_path):
    def curve(options, seed, step):
        return None if seed < options["x"] else step

    space = {"x": {"int": [0, 2]}}
    changes = {"sampler": "grid", "seeds": 4, "trials": 3, "confirm": 0}
    sweep = make_sweep(tmp_path / "s", space, **changes)
    drive(sweep, FakeEngine(curve=curve))
    assert [each.value for each in read_study(sweep).trials()] == [300, 300, -math.inf]


def test_a_trial_fails_with_one_of_its_seeds_and_is_the_worst_with_all(tmp_path):
    states = []
    for name, seeds in (("one", "0"), ("all", "01")):
        sweep = make_sweep(tmp_path / name, trials=1)
        frozen = dict.fromkeys(seeds, "the loss is not finite")
        drive(sweep, FakeEngine(end="failed", frozen=frozen))
        (trial,) = read_study(sweep).trials()
        states.append((trial.state, trial.value))
    assert states == [("failed", None), ("complete", -math.inf)]


def test_the_deadline_stops_all_trials_and_the_sweep_continues(tmp_path):
    sweep = make_sweep(tmp_path / "s")
    assert drive(sweep, FakeEngine(), max_time=Deadline(0.0)) == "out_of_time"
    assert find_sweep_status(sweep) == "out_of_time"
    assert drive(sweep, FakeEngine()) == "finished"
    assert len(list_trials(sweep)) == 6


def test_a_signal_stops_all_trials_and_the_sweep_continues(tmp_path):
    sweep, calls = make_sweep(tmp_path / "s"), []

    def interrupt(progress):
        calls.append(progress)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    engine = FakeEngine()
    assert drive(sweep, engine, interrupt) == "interrupted"
    assert (signal.SIGINT, None) in engine.signals
    running = [each for each in read_study(sweep).trials() if each.state == "running"]
    assert running
    again = FakeEngine()
    assert drive(sweep, again) == "finished"
    assert (f"trials/{running[0].number:04d}", "resume") in again.started
    assert [number for number, *_ in list_trials(sweep)] == [*range(6)]


def test_a_signal_while_a_process_starts_stops_that_process_too(tmp_path):
    class Interrupted(FakeEngine):
        def start(self, job):
            signal.raise_signal(signal.SIGTERM)  # it is not running yet
            super().start(job)

    engine = Interrupted()
    assert drive(make_sweep(tmp_path / "s"), engine) == "terminated"
    assert engine.signals[:2] == [
        (signal.SIGTERM, None),
        (signal.SIGTERM, "trials/0000"),
    ]
    assert len(engine.started) == 1


def test_a_run_that_another_process_trains_is_waited_for(tmp_path):
    sweep = make_sweep(tmp_path / "s", trials=1, confirm=0)
    with pytest.raises(KeyboardInterrupt):
        drive(sweep, FakeEngine(kill_after=1))
    run, seen = Run(sweep.trial(0)), []
    lock = run.lock()
    lock.__enter__()

    def unlock(progress):
        seen.append(progress)
        if len(seen) == 3:
            lock.__exit__(None, None, None)

    engine = FakeEngine()
    assert drive(sweep, engine, unlock) == "finished"
    assert len(seen) >= 3
    assert engine.started == [("trials/0000", "resume")]


def test_more_trials_continue_a_sweep_that_has_ended(tmp_path):
    sweep = make_sweep(tmp_path / "s", trials=3)
    drive(sweep, FakeEngine())
    found = open_sweep(sweep.folder)
    changed = dataclasses.replace(found.settings, trials=6)
    dataclasses.replace(found, settings=changed).write_settings()
    drive(sweep, FakeEngine())
    other = make_sweep(tmp_path / "t", trials=6)
    drive(other, FakeEngine())
    assert list_trials(sweep) == list_trials(other)
    assert read_winner(sweep)["winner"] == read_winner(other)["winner"]
