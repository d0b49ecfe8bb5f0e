"""The storage engine: drivers whose tasks share no folder with them."""

import json
import shutil
from concurrent.futures import Executor, Future

import pytest
import yaml
from stores import list_bytes
from sweeps import (
    FakeEngine,
    drive,
    group_by_kind,
    learning_curve,
    list_trials,
    make_sweep,
    read_winner,
    skip_disk,
    write_info,
)
from tiers import quick_first

import rlcli
from rlcli.errors import RlcliError
from rlcli.runs.run_folder import Run
from rlcli.studies.engines import (
    engine_options,
    ray_engine,
    stored_runs,
)
from rlcli.studies.engines.jobs import Job
from rlcli.studies.engines.run_storage import RunStorage
from rlcli.studies.engines.storage_engine import StorageEngine

pytest.importorskip("optuna")
pytest.importorskip("fsspec")
BASE = "environment: FrozenLakeNonSlippery-v0\nupdater: q_learning\n"
LAKE = "extends: base.yaml\ntrain: {steps: 300, evaluate: {every: 100}}\n"
SPACE = {"tracer.gamma": {"uniform": [0.5, 0.9]}}


class RemoteEngine(FakeEngine):
    """Trains in a folder of its own, and copies runs to and from the store.

    It does not train before it has been asked for ends `idle` times.
    """

    writes_recipes = False

    def __init__(self, *arguments, storage: RunStorage, node, idle=0, **keywords):
        super().__init__(*arguments, **keywords)
        self.storage = storage
        self.local = storage._replace(folder=node)
        self.uploaders = {}
        self.recipes = []
        self.idle = idle

    def start(self, job):
        assert {*job.options} & {"--trust", "--no-trust"}  # a node trusts nobody
        moved = job._replace(study=self.local.folder)
        uploader = stored_runs.RunUploader(self.local, moved)
        for folder in moved.folders:
            shutil.rmtree(folder, ignore_errors=True)
        uploader.take_over()
        self.uploaders[job.key] = uploader
        cells = json.loads(job.record)["cells"]
        self.recipes += [cell["recipe"] for cell in cells.values()]
        super().start(moved)
        for label, folder in zip(cells, moved.folders, strict=True):
            own = {"label": label, "values": cells[label]["values"]}
            write_info(folder, recipe="lake", cell=own)
            if self.writes_recipes:
                (folder / "resolved.yaml").write_text(BASE)

    def collect(self):
        self.idle -= 1
        if self.idle >= 0:
            return []
        keys = [*self.running]
        ends = super().collect()
        for key in keys:
            self.uploaders[key].finish()
        return ends

    def close(self):
        for uploader in self.uploaders.values():
            uploader.close()
        super().close()


class Immediately(Executor):
    """Copies while the driver waits: its tasks cannot end meanwhile."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    skip_disk(monkeypatch)
    group_by_kind(monkeypatch)
    monkeypatch.setattr(stored_runs, "_PERIOD", 0.0)
    monkeypatch.setattr(stored_runs, "_WAITS", (0.0,) * 3)


def make_engine(found, node, **keywords):
    storage = RunStorage(f"file://{node.parent}/store", found.folder)
    remote = RemoteEngine(storage=storage, node=node, **keywords)
    return StorageEngine(remote, storage), remote


@pytest.mark.parametrize("together", [1, 4])
def test_the_folder_of_a_driver_has_all_runs_at_the_end(tmp_path, together):
    local = make_sweep(tmp_path / "a", together=together)
    drive(local, FakeEngine())
    found = make_sweep(tmp_path / "b", together=together)
    engine, remote = make_engine(found, tmp_path / "node")
    assert drive(found, engine) == "finished"
    engine.close()
    assert list_trials(found) == list_trials(local)
    assert read_winner(found) == read_winner(local)
    for name in ("trials", "confirm"):
        expected = list_bytes(local.folder / name)
        assert list_bytes(found.folder / name).keys() == expected.keys()
        for path in expected:
            if path.endswith("metrics.jsonl"):
                assert (found.folder / name / path).read_bytes() == expected[path]
    assert len(remote.started) == 8 if together == 1 else len(remote.started) < 8


def test_evaluations_arrive_while_a_run_trains_so_that_it_can_be_pruned(tmp_path):
    changes = {"sampler": "grid", "pruner": "asha", "trials": 6, "confirm": 0}
    space = {"x": {"int": [3, 8]}}
    found = make_sweep(tmp_path / "s", space, **changes)
    engine, remote = make_engine(found, tmp_path / "node", room=6, idle=6)
    engine._threads = Immediately()
    assert drive(found, engine) == "finished"
    engine.close()
    states = [state for _, state, *_ in list_trials(found)]
    assert states.count("pruned") >= 3 and states[0] == "complete"
    assert any(key for _, key in remote.signals)  # stopped before their ends


@pytest.mark.parametrize("kill_after", quick_first([0, 3, 1, 5, 8], quick=2))
@pytest.mark.parametrize("together", quick_first([1, 4]))
def test_a_killed_driver_continues_with_the_runs_of_the_store(
    tmp_path, kill_after, together
):
    undisturbed = make_sweep(tmp_path / "a", together=together)
    drive(undisturbed, FakeEngine())
    found = make_sweep(tmp_path / "b", together=together)
    engine, _ = make_engine(found, tmp_path / "node", kill_after=kill_after)
    with pytest.raises(KeyboardInterrupt):
        drive(found, engine)
    engine._threads.shutdown()
    engine, remote = make_engine(found, tmp_path / "other")
    running = [n for n, state, *_ in list_trials(found) if state == "running"]
    infos = (tmp_path / "store/trials").glob("*/run.json")
    stored = {f"trials/{info.parent.name}" for info in infos}
    begun = Job(found.folder, tuple(f"trials/{n:04d}" for n in running))
    stored_runs.download_runs(remote.storage, begun)
    assert drive(found, engine) == "finished"
    engine.close()
    assert list_trials(found) == list_trials(undisturbed)
    assert read_winner(found) == read_winner(undisturbed)
    for number in range(6):
        info = Run(found.trial(number)).read_info()
        assert info["status"] == "finished"
        assert info.get("members") == Run(undisturbed.trial(number)).read_info().get(
            "members"
        )
    # What the first tasks have stored is not computed again.
    assert {verb for key, verb in remote.started if key in stored} <= {"resume"}


def test_a_store_that_fails_ends_the_driver_with_its_error(tmp_path, monkeypatch):
    found = make_sweep(tmp_path / "s", trials=2)
    engine, _ = make_engine(found, tmp_path / "node")

    def fail(storage, job):
        raise RlcliError("the store has failed")

    monkeypatch.setattr(stored_runs, "download_runs", fail)
    with pytest.raises(RlcliError, match="the store has failed"):
        drive(found, engine)
    engine._threads.shutdown()
    monkeypatch.undo()
    skip_disk(monkeypatch)
    engine, remote = make_engine(found, tmp_path / "other")
    begun = Job(found.folder, ("trials/0000", "trials/0001"))
    stored_runs.download_runs(remote.storage, begun)
    assert drive(found, engine) == "finished"
    engine.close()


@pytest.fixture
def remotes(folder, monkeypatch):
    """Lets `--engine ray` make engines without Ray; returns those that it makes."""
    (folder / "lake.yaml").write_text(LAKE)
    (folder / "base.yaml").write_text(BASE)
    made = []

    def make(jobs, *, storage, **keywords):
        def curve(options, seed, step):
            return learning_curve({"x": 10 * options["tracer.gamma"]}, seed, step)

        node = folder / f"node{len(made)}"
        made.append(RemoteEngine(jobs or 2, curve=curve, storage=storage, node=node))
        return made[-1]

    monkeypatch.setattr(ray_engine, "RayEngine", make)
    monkeypatch.setattr(engine_options, "require_extra", lambda extra, purpose: None)
    return made


def start(**keywords):
    defaults = {"space": SPACE, "trials": 3, "seeds": 2, "sampler": "random"}
    defaults |= {"pruner": "none"}
    defaults |= {"confirm": 1, "engine": "ray", "run_storage": "file:///tmp/no"}
    return rlcli.sweep("lake.yaml", **defaults | keywords)


def test_a_sweep_keeps_its_runs_and_its_recipe_in_the_store(remotes, tmp_path):
    url = f"file://{tmp_path}/store"
    path = start(run_storage=url, name="first")
    data = rlcli.show_sweep(path)
    assert (data["status"], data["counts"]) == ("finished", {"complete": 3})
    stored = json.loads((path / "study.json").read_text())["run_storage"]
    assert stored == {"url": url, "name": "lake/first"}
    runs = tmp_path / "store/lake/first"
    assert {each.name for each in (runs / "trials").iterdir()} == {
        *("0000", "0001", "0002")
    }
    data = yaml.safe_load(BASE) | yaml.safe_load(LAKE.partition("\n")[2])
    assert remotes[0].recipes[0] == {"name": "lake", "data": data}
    again = {"resume": True, "engine": "ray", "run_storage": url}
    assert rlcli.sweep(path, trials=4, **again) == path
    assert rlcli.show_sweep(path)["counts"] == {"complete": 4}
    assert remotes[1].started[0][0] == "trials/0003"
    with pytest.raises(RlcliError, match="contains the runs of another study"):
        start(run_storage=url, run=tmp_path / "elsewhere" / "first")
    assert not (tmp_path / "elsewhere").exists()


def test_a_sweep_continues_with_the_store_with_which_it_began(remotes, tmp_path):
    own = {"run_storage": f"file://{tmp_path}/store"}
    path = start(**own)
    for keywords, message in (
        ({"engine": "ray"}, "`.*store`: a folder cannot choose an address"),
        (
            {"engine": "ray", "run_storage": "s3://b"},
            "was started with `--run-storage`",
        ),
        (own, "`--run-storage` is an option of `--engine ray`, not of `local`"),
        (
            {"engine": "slurm", **own},
            "`--run-storage` is an option of `--engine ray`, not of `slurm`",
        ),
    ):
        with pytest.raises(RlcliError, match=message):
            rlcli.sweep(path, resume=True, **keywords)
    with pytest.raises(RlcliError, match="a folder cannot choose an address"):
        rlcli.study(path, cell=["trials/0000"])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"engine": "local"}, "is an option of `--engine ray`, not of `local`"),
        ({"run_storage": "/shared"}, "`/shared` is not a URL"),
        ({"run_storage": "s33://b/x"}, "fsspec has no storage `s33://`"),
        ({"engine": "slurm"}, "is an option of `--engine ray`, not of `slurm`"),
        ({"run_storage": "file:///proc/no"}, "cannot be written"),
    ],
)
def test_what_is_wrong_is_said_before_anything_begins(
    remotes, keywords, message, tmp_path
):
    with pytest.raises(RlcliError, match=message):
        start(**keywords)
    assert remotes == []
    assert not (tmp_path / "runs").exists()


def test_a_study_keeps_its_runs_in_the_store_and_continues_there(remotes, tmp_path):
    url = f"file://{tmp_path}/store"
    own = {"engine": "ray", "run_storage": url}
    keywords = {"set": ["tracer.gamma=0.5"], "seed": 0, "seeds": 2, "run": "study"}
    vary = ["updater.name=q_learning,sarsa"]
    ended = rlcli.study(["lake.yaml"], vary=vary, **keywords, **own)
    assert [each.code for each in ended] == [0, 0]
    assert remotes[0].recipes[0]["name"] == "lake"
    labels = [each.cell.label for each in ended]
    assert {each.name for each in (tmp_path / "store/lake/study").iterdir()} == {
        *labels
    }
    shutil.rmtree(ended[0].cell.folder)  # the store has it
    with pytest.raises(RlcliError, match="a folder cannot choose an address"):
        rlcli.study("study")
    again = rlcli.study("study", **own)
    assert [each.code for each in again] == [0, 0]
    assert remotes[1].started == []
    with pytest.raises(RlcliError, match="contains the runs of another study"):
        rlcli.study(["lake.yaml"], run="elsewhere/study", **own)


@pytest.mark.slow
def test_the_blocks_of_a_test_are_in_the_store(remotes, folder, monkeypatch):
    """A driver that has lost the folder's runs decides as before."""
    monkeypatch.setattr(RemoteEngine, "writes_recipes", True)
    own = {"engine": "ray", "run_storage": f"file://{folder}/store"}
    (folder / "paper.yaml").write_text(
        "recipes: [lake.yaml]\nvary: {tracer.gamma: [0.5, 0.3, 0.6]}\nseeds: 2\n"
        "test: {baseline: lake gamma=0.5, effect: 1, max_seeds: 20}\n"
    )
    ended = rlcli.study("paper.yaml", run="study", **own)
    claims = rlcli.claim("study")["claims"]
    found = {each["cell"]: (each["verdict"], each["seeds"]) for each in claims}
    assert found == {"lake gamma=0.3": ("better", 12), "lake gamma=0.6": ("worse", 12)}
    stored = {each.name for each in (folder / "store/paper/study").iterdir()}
    assert stored == {f"seed={first}" for first in range(0, 12, 2)}
    assert len(remotes[0].started) >= 6
    for each in ended[-3:]:  # the store has it
        shutil.rmtree(each.cell.folder)
    assert rlcli.claim("study")["claims"][0]["seeds"] == 10
    rlcli.study("study", **own)
    assert rlcli.claim("study")["claims"] == claims
    assert remotes[-1].started == []


def test_a_study_that_is_stopped_keeps_its_record_for_the_runs_in_the_store(
    remotes, folder, monkeypatch
):
    def stop(cells, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr("rlcli.studies.train_study.train_recorded", stop)
    for name, own in {
        "here": {},
        "there": {"engine": "ray", "run_storage": f"file://{folder}/store"},
    }.items():
        with pytest.raises(KeyboardInterrupt):
            rlcli.study(["lake.yaml"], run=name, **own)
        assert (folder / name / "study.json").exists() == (name == "there")
