"""Stored runs: copies to a store, whatever is cut off, and the tasks that make them."""

import itertools
import json
import shutil
import threading

import pytest
from stores import FailingStorage, list_bytes
from sweeps import skip_disk

import rlcli
from rlcli.errors import RlcliError
from rlcli.runs.metrics import drop_clock_fields, read_metrics
from rlcli.runs.run_folder import Run, is_run
from rlcli.studies.engines import stored_runs
from rlcli.studies.engines.jobs import Job
from rlcli.studies.engines.stored_runs import (
    RunUploader,
    TakenOverError,
    download_evaluations,
    download_runs,
    open_job,
)
from rlcli.training import recovery

pytest.importorskip("fsspec")
RECIPE = {
    "environment": "FrozenLakeNonSlippery-v0",
    "network": "table",
    "updater": {"name": "q_learning", "loss": "mse"},
    "train": {
        "steps": 300,
        "seeds": 2,
        "evaluate": {"every": 100, "episodes": 2},
        "checkpoint": {"every": 100, "keep": 1},
    },
}


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Copies of the folder of a run: [empty, step 1, 100, 200, 300, ended]."""
    folder = tmp_path_factory.mktemp("states")
    copies = []

    def copy():
        copies.append(folder / str(len(copies)))
        shutil.copytree(folder / "run", copies[-1])

    (folder / "run").mkdir()
    copy()
    is_due = False
    for chunk in rlcli.chunks(RECIPE, run=folder / "run", quiet=True):
        if is_due:  # the files of a chunk are written when the next one is requested
            copy()
        is_due = chunk.step == 1 or chunk.step % 100 == 0
    copy()
    return copies


def set_state(run, state):
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(state, run)


@pytest.fixture
def job(tmp_path, monkeypatch):
    skip_disk(monkeypatch)
    monkeypatch.setattr(stored_runs, "_WAITS", (0.0,) * 3)
    monkeypatch.setattr(FailingStorage, "left", 10**9)
    return Job(tmp_path / "local", ("trials/0000",), record=b"{}")


@pytest.fixture
def storage(tmp_path):
    (tmp_path / "local").mkdir()
    return FailingStorage(f"file://{tmp_path}/store", tmp_path / "local")


def elsewhere(storage, job, name):
    """The same in the folder of another node."""
    folder = storage.folder.with_name(name)
    return storage._replace(folder=folder), job._replace(study=folder)


@pytest.mark.slow
def test_a_run_in_the_store_is_that_of_the_folder(storage, job, states):
    uploader = RunUploader(storage, job)
    uploader.take_over()
    (run,) = job.folders
    for state in states[1:]:
        set_state(run, state)
        uploader.upload()
        storage_there, job_there = elsewhere(storage, job, "there")
        download_runs(storage_there, job_there)
        expected = list_bytes(run)
        expected.pop(".lock", None)
        assert list_bytes(job_there.folders[0]) == expected
    before = FailingStorage.left
    uploader.upload()
    assert before == FailingStorage.left  # nothing has changed


@pytest.mark.slow
def test_a_copy_that_is_cut_off_leaves_a_run_that_can_continue(
    storage, job, states, tmp_path
):
    """After any number of changes in the store, at every step of the run."""
    (run,) = job.folders
    cuts = 0
    for begin, end in itertools.pairwise(states):
        for left in range(100):
            shutil.rmtree(tmp_path / "store", ignore_errors=True)
            set_state(run, begin)
            uploader = RunUploader(storage, job)
            uploader.upload()
            set_state(run, end)
            FailingStorage.left = left
            is_cut = False
            try:
                uploader.upload()
            except RlcliError:
                is_cut = True
            FailingStorage.left = 10**9
            check_opens(storage, job, tmp_path / "there")
            if not is_cut:
                break
            cuts += 1
            uploader.upload()  # the next attempt completes it
            there, moved = elsewhere(storage, job, "there")
            download_runs(there, moved)
            assert list_bytes(moved.folders[0]) == {
                name: data for name, data in list_bytes(run).items() if name != ".lock"
            }
    assert cuts > 20


def check_opens(storage, job, folder):
    """Whether a task elsewhere could continue the run, with all of its rows."""
    shutil.rmtree(folder, ignore_errors=True)
    storage, job = elsewhere(storage, job, folder.name)
    download_runs(storage, job)
    run = Run(job.folders[0])
    if not is_run(run.folder):
        assert not run.list_checkpoints()  # it begins anew
        return
    (saved,), messages = recovery.newest_common([run])
    assert messages == []
    recipe, *_ = recovery.recorded_recipe(run, saved, (), False)
    assert recovery.recorded_seeds(run, saved, recipe) == [0, 1]
    step = 0 if saved is None else int(saved.path.name.partition(".")[0])
    steps = {row["T"] for row in read_metrics(run.folder)}
    assert {*range(100, step + 1, 100)} <= steps
    if run.read_info()["status"] == "finished":
        assert step == 300
    if step:
        assert run.policy.exists() and run.best.exists()


def test_evaluations_are_read_without_the_end_of_the_run(storage, job, states):
    (run,) = job.folders
    set_state(run, states[-1])
    RunUploader(storage, job).upload()
    there, moved = elsewhere(storage, job, "there")
    download_evaluations(there, [moved])
    (copy,) = moved.folders
    assert {path.name for path in copy.iterdir()} == {"metrics.jsonl", "run.json"}
    assert read_metrics(copy) == read_metrics(run)
    assert Run(run).read_info()["status"] == "finished"
    assert Run(copy).read_info()["status"] == "running"


@pytest.mark.parametrize("text", [b"", b"[]", b'{"status": ', b"3", b"\xff"])
def test_a_record_that_is_cut_off_in_the_store_stops_no_driver(storage, job, text):
    (run,) = job.folders
    storage.write(run / "run.json", text)
    there, moved = elsewhere(storage, job, "there")
    download_evaluations(there, [moved])
    assert Run(moved.folders[0]).info.read_bytes() == text


def test_a_task_that_was_believed_to_be_lost_copies_nothing_more(storage, job, states):
    set_state(job.folders[0], states[2])
    lost = RunUploader(storage, job)
    lost.take_over()
    there, moved = elsewhere(storage, job, "there")
    RunUploader(there, moved).take_over()
    before = list_bytes(storage.folder.with_name("store"))
    set_state(job.folders[0], states[3])
    with pytest.raises(TakenOverError):
        lost.finish()
    assert list_bytes(storage.folder.with_name("store")) == before


def test_a_checkpoint_that_is_removed_meanwhile_begins_the_copy_again(
    storage, job, states, monkeypatch
):
    (run,) = job.folders
    set_state(run, states[2])
    uploader = RunUploader(storage, job)
    upload = FailingStorage.upload

    def advance_first(self, path):
        if path.parent.name == "checkpoints" and path.exists():
            monkeypatch.undo()
            set_state(run, states[3])
        upload(self, path)

    monkeypatch.setattr(FailingStorage, "upload", advance_first)
    uploader.upload()
    there, moved = elsewhere(storage, job, "there")
    download_runs(there, moved)
    assert Run(moved.folders[0]).latest_checkpoint() is not None
    assert list_bytes(moved.folders[0], "checkpoints/*") == list_bytes(
        run, "checkpoints/*"
    )


def test_a_task_has_the_inputs_of_its_job_and_copies_its_runs(
    storage, job, states, monkeypatch
):
    monkeypatch.setattr(stored_runs, "_PERIOD", 0.0)
    population = "trials/rounds.jsonl"
    (storage.folder / "trials").mkdir()
    (storage.folder / population).write_text("{}\n")
    stored_runs.upload_inputs(storage, job)
    with open_job(storage, job) as (local, poll):
        root = local.folders[0].parents[1]
        assert root != storage.folder
        assert local.arguments[-2:] == ["--", str(root)]
        assert (root / "study.json").read_bytes() == job.record
        assert (root / population).read_text() == "{}\n"
        (root / population).write_text("{}\n{}\n")
        set_state(local.folders[0], states[2])
        FailingStorage.left = 3  # poll tries again after an error
        while FailingStorage.left:
            poll()
        FailingStorage.left = 10**9
    assert not root.exists()
    download_runs(storage, job)
    assert (storage.folder / population).read_text() == "{}\n{}\n"
    assert Run(job.folders[0]).latest_checkpoint() is not None


def test_an_interrupted_task_copies_its_runs_and_an_error_of_the_store_ends_it(
    storage, job, states
):
    before = {*threading.enumerate()}
    with (
        pytest.raises(KeyboardInterrupt),
        open_job(storage, job) as (local, _),
    ):
        set_state(local.folders[0], states[2])
        raise KeyboardInterrupt
    download_runs(storage, job)
    assert Run(job.folders[0]).latest_checkpoint() is not None
    with (
        pytest.raises(RlcliError, match="the store has failed"),
        open_job(storage, job) as (local, _),
    ):
        assert Run(local.folders[0]).latest_checkpoint() is not None
        set_state(local.folders[0], states[3])
        FailingStorage.left = 0
    FailingStorage.left = 10**9
    for thread in {*threading.enumerate()} - before:
        thread.join(20)
        assert not thread.is_alive(), thread


@pytest.mark.slow
def test_a_task_continues_elsewhere_to_the_same_bytes(storage, job, states, tmp_path):
    """From a copy that was cut off after any file of the second checkpoint."""
    (run,) = job.folders
    for left in (1, 3, 5):
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        set_state(run, states[2])
        uploader = RunUploader(storage, job)
        uploader.upload()
        set_state(run, states[3])
        FailingStorage.left = left
        with pytest.raises(RlcliError):
            uploader.upload()
        FailingStorage.left = 10**9
        with open_job(storage, job) as (local, _):
            rlcli.resume(local.folders[0], quiet=True)
        download_runs(storage, job)
        end = states[-1]
        for pattern in ("checkpoints/*", "*.lz4"):
            assert list_bytes(run, pattern) == list_bytes(end, pattern)
        rows = [[*map(drop_clock_fields, read_metrics(each))] for each in (run, end)]
        assert rows[0] == rows[1]
        assert json.loads((run / "run.json").read_text())["status"] == "finished"
