"""Tracking: what trackers get, and that they never stop or delay a run."""

import json
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import rlcli
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.runs.metrics import Metrics
from rlcli.runs.run_folder import Run
from rlcli.trackers import Tracker
from rlcli.training.tracking import tracking
from rlcli.training.tracking.track_records import Results
from rlcli.training.tracking.tracking import Tracking, build_trackers

DATA = {"environment": "CartPole-v1", "updater": "ppo", "train": {"seeds": 2}}


class Recorder:
    """A tracker that remembers its calls; `failing` is the function that raises."""

    def __init__(self, failing="", takes_histograms=True):
        self.runs, self.steps, self.statuses = [], [], []
        self.histogram_steps = []
        self.failing = failing
        self.takes_histograms = takes_histograms

    @property
    def tracker(self):
        return Tracker(self.start, self.log, self.finish, self.takes_histograms)

    def _fail(self, name):
        if name == self.failing:
            raise OSError(f"no {name} today")

    def start(self, run):
        self._fail("start")
        self.runs.append(run)
        return self

    def log(self, session, records):
        assert session is self
        self._fail("log")
        self.steps += [record.step for record in records if record.seed is None]
        self.histogram_steps += [item.step for item in records if item.histograms]

    def finish(self, session, status):
        self._fail("finish")
        self.statuses.append(status)


def rows_at(*steps):
    return [{"T": step, "seed": seed, "G": 1.0} for step in steps for seed in (0, 1)]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"tags": ["first"]}')
    return Run(tmp_path / "run")


def begin(folder, trackers, step=0):
    return Tracking(trackers, folder, load_recipe(DATA), (0, 1), step)


def track(folder, recorder, *chunks, resume_at=None):
    """Writes and tracks chunks of rows; returns the warnings."""
    step = resume_at or 0
    with Metrics(folder.folder, resume_at) as metrics:
        tracked = begin(folder, {"mine": recorder.tracker}, step)
        for rows in chunks:
            metrics.append(rows)
            tracked.log(Results(rows))
            step = rows[-1]["T"]
        tracked.status = "finished"
        tracked.finish(step)
    return [*tracked.messages()]


def test_a_tracker_gets_the_run_every_row_once_and_the_status(folder):
    recorder = Recorder()
    assert track(folder, recorder, rows_at(10, 20), rows_at(30)) == []
    assert recorder.steps == [10, 20, 30] and recorder.statuses == ["finished"]
    (run,) = recorder.runs
    assert (run.name, run.seeds, run.step) == ("recipe/run", (0, 1), 0)
    assert run.tags == ("first",) and run.folder == folder.folder
    assert run.recipe["updater"]["name"] == "ppo"
    marks = json.loads(folder.trackers.read_text())
    assert marks == {"id": run.id, "steps": {"mine": 30}}


def test_a_tracker_may_change_what_it_gets(folder):
    """What it gets is its own: the other tracker and the file have the rest."""

    class Spoils(Recorder):
        def start(self, run):
            run.recipe.clear()
            return super().start(run)

        def log(self, session, records):
            super().log(session, records)
            for record in records:
                record.scalars.clear()
                for values in record.histograms.values():
                    values[:] = 0

    class Sums(Recorder):
        def log(self, session, records):
            super().log(session, records)
            self.names = [set(record.scalars) for record in records]
            self.sums = [sum(map(np.sum, each.histograms.values())) for each in records]

    spoils, sums = Spoils(), Sums()
    ours = np.ones(3)
    tracked = begin(folder, {"first": spoils.tracker, "second": sums.tracker})
    tracked.log(Results(rows_at(10), ({"evaluation/returns": ours},) * 2))
    tracked.finish(10)
    assert [*tracked.messages()] == []
    assert sums.runs[0].recipe["updater"]["name"] == "ppo"
    assert sums.names == [{"train/return"}] * 3 and sums.sums == [6, 3, 3]
    assert ours.sum() == 3


def test_a_resumed_run_hands_over_no_row_twice_that_its_marks_have(folder):
    """It continues at its checkpoint of step 20, and computes row 30 again."""
    recorder = Recorder()
    track(folder, recorder, rows_at(10, 20), rows_at(30))
    track(folder, recorder, rows_at(30), rows_at(40), resume_at=20)
    assert recorder.steps == [10, 20, 30, 40]
    first, second = recorder.runs
    assert first.id == second.id and second.step == 30


KILLED = """
import os, sys
from pathlib import Path
import test_tracking as tests

folder = tests.Run(Path(sys.argv[1]))

class Killed(tests.Recorder):
    def log(self, session, records):
        super().log(session, records)
        os.write(1, f"{self.steps[-1]} ".encode())
        if self.steps[-1] == 20:
            os._exit(9)

tests.track(folder, Killed(), *map(tests.rows_at, (10, 20, 30)))
"""


@pytest.mark.slow  # starts a process
def test_after_a_kill_a_tracker_gets_each_row_at_least_once(folder):
    """The process dies when the tracker has row 20, but `trackers.json` does not."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder.folder)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert (killed.returncode, killed.stdout) == (9, b"10 20 ")
    recorder = Recorder()
    track(folder, recorder, rows_at(20, 30), rows_at(40), resume_at=10)
    assert recorder.steps == [20, 30, 40]
    assert recorder.runs[0].step == 10


def test_a_tracker_that_a_resume_adds_gets_the_rows_from_before(folder):
    track(folder, Recorder("log"), rows_at(10, 20), rows_at(30))
    recorder = Recorder()
    assert track(folder, recorder, rows_at(40), resume_at=30) == []
    assert recorder.steps == [10, 20, 30, 40]


@pytest.mark.parametrize("function", ["start", "log", "finish"])
def test_a_tracker_that_raises_is_a_single_warning(folder, function):
    failing, sound = Recorder(function), Recorder()
    tracked = begin(folder, {"failing": failing.tracker, "sound": sound.tracker})
    for step in (10, 20, 30):
        tracked.log(Results(rows_at(step)))
    tracked.status = "finished"
    tracked.finish(30)
    (message,) = tracked.messages()
    assert message.startswith(f"tracker `failing` failed: OSError: no {function} today")
    assert message.endswith("; the run continues without it")
    assert sound.steps == [10, 20, 30] and sound.statuses == ["finished"]


def test_a_tracker_that_hangs_delays_neither_training_nor_the_end_for_long(
    folder, monkeypatch
):
    monkeypatch.setattr(tracking, "_PATIENCE", 0.05)
    end = threading.Event()
    recorder = Recorder()
    recorder.log = lambda session, records: end.wait(10)
    start = time.monotonic()
    (message,) = track(folder, recorder, rows_at(10), rows_at(20))
    end.set()
    assert time.monotonic() - start < 5
    assert message.startswith("tracker `mine` has not finished within 0.05 s")


def test_a_request_to_stop_ends_the_wait_for_a_tracker(folder):
    end = threading.Event()
    recorder = Recorder()
    recorder.log = lambda session, records: end.wait(10)
    tracked = begin(folder, {"mine": recorder.tracker})
    tracked.log(Results(rows_at(10)))
    start = time.monotonic()
    tracked.finish(10, lambda: True)
    end.set()
    assert time.monotonic() - start < 5
    (message,) = tracked.messages()
    assert message.startswith("tracker `mine` has not finished before a request to")


def hang(folder, recorder, steps, histograms=lambda: ()):
    """A tracker that hangs in `start` while rows at some steps are tracked.

    Returns the tracking, and the function that ends the hanging.
    """
    go = threading.Event()
    recorder.start = lambda run: go.wait(10) and recorder
    tracked = begin(folder, {"mine": recorder.tracker})
    with Metrics(folder.folder) as metrics:
        for step in steps:
            metrics.append(rows_at(step))
            tracked.log(Results(rows_at(step), histograms()))
    return tracked, go.set


def test_a_slow_tracker_gets_from_the_file_what_could_not_wait(folder, monkeypatch):
    monkeypatch.setattr(tracking, "MAX_ROWS", 2)
    recorder = Recorder()
    tracked, go_on = hang(folder, recorder, (10, 20, 30))
    go_on()
    tracked.finish(30)
    assert recorder.steps == [10, 20, 30] and recorder.statuses == ["failed"]


def make_histograms(alive):
    """The histograms of two seeds, 32 MiB in all; `alive` has those in memory."""

    def make():
        values = [np.zeros(2**24, np.uint8) for _ in range(2)]
        for array in values:
            weakref.finalize(array, alive.remove, id(array))
            alive.append(id(array))
        return [{"parameters/w": array} for array in values]

    return make


@pytest.mark.slow
def test_only_the_newest_histograms_wait_for_a_tracker_that_hangs(folder):
    alive, recorder = [], Recorder()
    tracked, go_on = hang(folder, recorder, range(1, 11), make_histograms(alive))
    assert len(alive) * 2**24 == tracking.MAX_BYTES == 64 * 2**20
    go_on()
    tracked.finish(10)
    assert recorder.steps == [*range(1, 11)]
    assert recorder.histogram_steps == [9, 9, 10, 10]  # of two seeds


def test_no_histogram_waits_for_a_tracker_that_takes_none(folder):
    alive, recorder = [], Recorder(takes_histograms=False)
    tracked, go_on = hang(folder, recorder, (1, 2), make_histograms(alive))
    assert not alive
    go_on()
    tracked.finish(2)
    assert recorder.steps == [1, 2] and recorder.histogram_steps == []


def test_histograms_of_one_evaluation_wait_whatever_their_size(folder, monkeypatch):
    monkeypatch.setattr(tracking, "MAX_BYTES", 1)
    recorder = Recorder()
    tracked, go_on = hang(folder, recorder, (1, 2), make_histograms([]))
    go_on()
    tracked.finish(2)
    assert recorder.histogram_steps == [2, 2]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes the module `mine_t` with a factory `mine` of one line of code."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(code, parameters=""):
        text = f"def mine({parameters}):\n    '''Mine.'''\n    {code}\n"
        (tmp_path / "mine_t.py").write_text(text)

    yield write
    sys.modules.pop("mine_t", None)


SOUND = "from rlcli.trackers import Tracker; return Tracker(print, print, print)"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise OSError('broken')", "tracker `mine_t:mine` raised OSError: broken"),
        ("return 3", "tracker `mine_t:mine` returned `int`"),
    ],
)
def test_a_factory_that_makes_no_tracker_is_refused(code, message, module):
    module(code)
    with pytest.raises(RlcliError) as caught:
        build_trackers(load_recipe(DATA, ["train.trackers=[mine_t:mine]"]))
    assert message in caught.value.message


def test_a_tracker_that_is_listed_twice_is_refused(module):
    module(SOUND)
    assert [*build_trackers(load_recipe(DATA, ["train.trackers=[mine_t:mine]"]))]
    recipe = load_recipe(DATA, ["train.trackers=[mine_t:mine, mine_t:mine]"])
    with pytest.raises(RlcliError, match="`mine_t:mine` is listed twice") as caught:
        build_trackers(recipe)
    assert caught.value.hint == "remove one of them"


FILE = """
    from rlcli.trackers import Tracker

    def log(session, records):
        steps = {record.step for record in records}
        session.write("".join(f"{step} " for step in sorted(steps)))

    def start(run):
        return (run.folder / file).open("a")

    return Tracker(start, log, lambda session, status: session.close())
"""


def test_a_tracker_with_other_options_gets_the_rows_from_before(module, folder):
    """It may send them to another place; the place from before continues."""
    module(FILE, "*, file: str = 'a.txt'")
    for step, options in ((10, ""), (20, ", file: b.txt"), (30, "")):
        part = f"train.trackers=[{{name: mine_t:mine{options}}}]"
        recipe = load_recipe(DATA, [part])
        with Metrics(folder.folder, step - 10) as metrics:
            trackers = build_trackers(recipe)
            tracked = Tracking(trackers, folder, recipe, (0, 1), step - 10)
            metrics.append(rows_at(step))
            tracked.log(Results(rows_at(step)))
            tracked.finish(step)
        assert [*tracked.messages()] == []
    texts = [(folder.folder / name).read_text() for name in ("a.txt", "b.txt")]
    assert texts == ["10 20 30 ", "10 20 "]
    marks = json.loads(folder.trackers.read_text())["steps"]
    assert marks == {"mine_t:mine": 30, 'mine_t:mine {"file": "b.txt"}': 20}


def test_a_missing_extra_is_found_before_work_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "rlcli.registry.libraries.importlib.util.find_spec", lambda name: None
    )
    with pytest.raises(RlcliError, match="requires `tensorboardX`") as caught:
        rlcli.train(DATA, set=["train.trackers=[tensorboard]"], run=tmp_path / "run")
    assert caught.value.hint.startswith("pip install ")
    assert not (tmp_path / "run").exists()
