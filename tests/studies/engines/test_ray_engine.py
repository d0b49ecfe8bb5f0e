"""The Ray engine: tasks that end, fail, are cancelled, and lose their worker."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from stores import list_bytes, serve_s3

import rlcli
from rlcli.recipe import read_recipe
from rlcli.runs.metrics import drop_clock_fields, read_metrics
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import format_record, record_study
from rlcli.studies.engines import stored_runs
from rlcli.studies.engines.jobs import Job
from rlcli.studies.engines.run_storage import RunStorage
from rlcli.studies.study_grid import make_cell

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of Ray
]
LAKE = """
environment: FrozenLakeNonSlippery-v0
network: table
updater: {name: q_learning, loss: mse}
train: {steps: 500_000_000, evaluate: {every: 1_000_000, episodes: 2}}
"""


@pytest.fixture(scope="module")
def engine():
    from rlcli.studies.engines.ray_engine import RayEngine

    # Workers have an environment of their own in which to find the package.
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
    made = RayEngine(2)
    yield made
    made.close()


def wait_for(condition, seconds=240):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return result


def plan(study, steps, folder="lake"):
    """Records a cell with so many steps, and returns its job."""
    study.mkdir(parents=True, exist_ok=True)
    recipe = study.parent / "lake.yaml"
    recipe.write_text(LAKE)
    document = read_recipe(recipe, [f"train.steps={steps}"])
    cell = make_cell(document, embeds=True, study=study, folder=study / folder)
    record_study(study, [cell])
    return Job(study, (folder,), ("--trust",), record=format_record([cell]))


def test_a_task_returns_the_exit_code_and_the_error(engine, tmp_path):
    job = plan(tmp_path / "study", 1_000)
    engine.start(job)
    engine.start(job._replace(labels=("nope",)))
    assert not engine.has_room
    ended = {}

    def collect():
        ended.update({each.key: each for each in engine.collect()})
        return len(ended) == 2

    wait_for(collect)
    assert ended["lake"].code == 0
    assert ended["nope"].code == 1
    assert "has no cell `nope`" in ended["nope"].message


def test_a_run_continues_after_its_worker_is_killed_and_stops_when_cancelled(
    engine, tmp_path
):
    job = plan(tmp_path / "study", 500_000_000)
    (folder,) = job.folders
    engine.start(job)
    wait_for(lambda: read_metrics(folder))  # before, a signal may leave no checkpoint

    def read_info():
        return json.loads((folder / "run.json").read_text())

    process = int((folder / ".lock").read_text())
    status = Path(f"/proc/{process}/status").read_text()
    worker = next(line for line in status.splitlines() if line.startswith("PPid"))
    os.kill(int(worker.split()[1]), signal.SIGKILL)
    wait_for(lambda: read_info().get("resumes"))
    wait_for(lambda: read_info()["status"] == "running")
    engine.send_signal(signal.SIGTERM, "lake")
    (end,) = wait_for(engine.collect)
    assert end.code == 143
    wait_for(lambda: read_info()["status"] == "terminated")
    assert [*(folder / "checkpoints").iterdir()]


def test_a_run_in_a_store_continues_elsewhere_after_its_worker_is_killed(
    engine, tmp_path, monkeypatch
):
    pytest.importorskip("fsspec")
    storage = RunStorage(f"file://{tmp_path}/store", tmp_path / "local")
    monkeypatch.setattr(engine, "_storage", storage)
    job = plan(tmp_path / "local", 6_000_000, "trials/0000")
    folder, stored = tmp_path / "local/trials/0000", tmp_path / "store/trials/0000"
    stored_runs.upload_inputs(storage, job)
    engine.start(job)
    wait_for((stored / "checkpoints.json").exists)
    owner = (stored / ".owner").read_text()
    os.kill(find_worker(stored), signal.SIGKILL)
    wait_for(lambda: (stored / ".owner").read_text() != owner)
    (end,) = wait_for(engine.collect)
    assert (end.code, end.message) == (0, "")
    assert not folder.exists()  # only the store has it
    stored_runs.download_runs(storage, job)
    assert len(Run(folder).read_info()["resumes"]) == 1
    words = ["train", "--quiet", "--run", str(tmp_path / "undisturbed")]
    words += ["--set", "train.steps=6_000_000", str(tmp_path / "lake.yaml")]
    subprocess.run([sys.executable, "-m", "rlcli", *words], check=True)
    for name in ("checkpoints/006000000.pkl.lz4", "policy.pkl.lz4", "best.pkl.lz4"):
        undisturbed = (tmp_path / "undisturbed" / name).read_bytes()
        assert (folder / name).read_bytes() == undisturbed
    rows = [
        [*map(drop_clock_fields, read_metrics(each))]
        for each in (folder, tmp_path / "undisturbed")
    ]
    assert rows[0] == rows[1]


def find_worker(stored):
    """The process of the task that trains a run: the parent of its training process."""
    created = json.loads((stored / "run.json").read_text())["created"]
    for info in Path(tempfile.gettempdir()).glob("rlcli-*/trials/0000/run.json"):
        if json.loads(info.read_text())["created"] == created:
            process = int((info.parent / ".lock").read_text())
            status = Path(f"/proc/{process}/status").read_text()
            return int(status.partition("PPid:")[2].split()[0])
    raise AssertionError("no task trains the run")


def test_a_cancelled_task_has_copied_its_checkpoint_to_the_store(
    engine, tmp_path, monkeypatch
):
    pytest.importorskip("fsspec")
    storage = RunStorage(f"file://{tmp_path}/store", tmp_path / "local")
    monkeypatch.setattr(engine, "_storage", storage)
    stored = tmp_path / "store/trials/0000"
    engine.start(plan(tmp_path / "local", 500_000_000, "trials/0000"))
    wait_for((stored / "metrics.jsonl").exists)
    engine.send_signal(signal.SIGTERM, "trials/0000")
    (end,) = wait_for(engine.collect)
    assert end.code == 143
    assert json.loads((stored / "run.json").read_text())["status"] == "terminated"
    assert (stored / "checkpoints.json").exists()


@pytest.mark.parametrize("stores", [False, True])
def test_a_sweep_that_loses_a_node_has_the_trials_of_an_undisturbed_one(
    tmp_path, stores
):
    from benchmarks import cluster

    if ray.is_initialized():
        ray.shutdown()
    sizes = {"trials": 4, "seeds": 2}
    local = cluster.sweep(tmp_path / "local", jobs=2, **sizes)
    url = f"file://{tmp_path}/store" if stores else None
    disturbed = cluster.sweep_with_a_lost_node(
        tmp_path / "cluster", **sizes, run_storage=url
    )
    assert disturbed["lost_at"] >= 2
    assert disturbed["counts"] == {"complete": 4}
    assert cluster.summarize(disturbed) == cluster.summarize(local)
    for pattern in ("*/*/checkpoints/*", "*/*/*.lz4"):
        found = list_bytes(tmp_path / "cluster", pattern)
        assert found == list_bytes(tmp_path / "local", pattern)


def test_a_sweep_on_s3_continues_after_its_driver_is_killed(tmp_path):
    pytest.importorskip("optuna")
    if ray.is_initialized():
        ray.shutdown()
    (tmp_path / "lake.yaml").write_text(LAKE.replace("500_000_000", "4_000_000"))
    space = "optimizer.learning_rate: {uniform: [0.1, 0.9]}\n"
    (tmp_path / "space.yaml").write_text(space)
    words = [sys.executable, "-m", "rlcli", "sweep", "--quiet", "--engine"]
    new = ["lake.yaml", "--space", "space.yaml", "--trials", "2", "--seeds", "1"]
    new += ["--sampler", "random", "--pruner", "none", "--confirm", "0"]
    new += ["--together", "1"]
    with serve_s3() as url:
        import s3fs

        files = s3fs.S3FileSystem(use_listings_cache=False)
        remote = [*words, "ray", "--jobs", "2"]
        arguments = [*remote, *new, "--run", "remote", "--run-storage", url]
        process = subprocess.Popen(arguments, cwd=tmp_path)
        indices = f"{url}/lake/remote/trials/*/checkpoints.json"
        wait_for(lambda: len(files.glob(indices)) == 2 or process.poll() is not None)
        assert process.poll() is None
        process.kill()
        process.wait()
        resumed = [*remote, "remote", "--resume", "--run-storage", url]
        subprocess.run(resumed, cwd=tmp_path, check=True)
        local = [*words, "local", "--jobs", "2", *new, "--run", "local"]
        subprocess.run(local, cwd=tmp_path, check=True)
    for pattern in ("*/*/checkpoints/*", "*/*/*.lz4"):
        found = list_bytes(tmp_path / "remote", pattern)
        assert found == list_bytes(tmp_path / "local", pattern)
        assert len(found) >= 2
    infos = (tmp_path / "remote").glob("trials/*/run.json")
    assert any(json.loads(info.read_text()).get("resumes") for info in infos)


def test_the_example_of_a_cluster_is_valid():
    jsonschema = pytest.importorskip("jsonschema")
    root = Path(__file__).parents[3]
    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    example = (root / "examples" / "cluster" / "ray.yaml").read_text()
    jsonschema.validate(yaml.safe_load(example), json.loads(schema.read_text()))


def run_rlcli(*words):
    command = [sys.executable, "-m", "rlcli", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize("stores", [False, True])
def test_a_study_with_a_test_reaches_the_verdict_of_local_processes(
    stores, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    optimizer = "optimizer: {name: sgd, learning_rate: 0.5}\n"
    lake = LAKE.replace("500_000_000", "1_000") + optimizer
    (tmp_path / "lake.yaml").write_text(lake)
    (tmp_path / "paper.yaml").write_text(
        "recipes: [lake.yaml]\n"
        "vary: {optimizer.learning_rate: [0.5, 0.01]}\n"
        "set: ['train.evaluate={every: 500, episodes: 4}']\n"
        "seeds: 2\n"
        "test: {baseline: lake learning_rate=0.5, effect: 0.3, max_seeds: 8}\n"
    )
    words = ["--engine", "ray", "--jobs", 2]
    if stores:
        pytest.importorskip("fsspec")
        words += ["--run-storage", f"file://{tmp_path}/store"]
    run_rlcli("study", "paper.yaml", "--run", "there", *words)
    run_rlcli("study", "paper.yaml", "--run", "here")
    there, here = rlcli.claim("there"), rlcli.claim("here")
    assert there["claims"] == here["claims"]
    assert here["claims"][0]["verdict"] == "no difference"


def test_a_bsuite_in_a_store_continues_after_its_driver_is_killed(
    tmp_path, monkeypatch
):
    pytest.importorskip("fsspec")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    words = ["--engine", "ray", "--jobs", "2"]
    words += ["--run-storage", f"file://{tmp_path}/store"]
    ids = ["dqn_cartpole", "bandit/0", "bandit/1", "umbrella_length/0"]
    command = [sys.executable, "-m", "rlcli", "bsuite", *ids, "--run", "there", *words]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        found = tmp_path / "store/dqn_cartpole/there/runs"
        wait_for(lambda: [*found.glob("*/checkpoints.json")])
        assert driver.poll() is None
    finally:
        driver.kill()
        driver.wait()
    run_rlcli("resume", "there", *words)
    run_rlcli("bsuite", *ids, "--run", "here")
    results = [
        {path.name: path.read_bytes() for path in Path(each, "results").iterdir()}
        for each in ("there", "here")
    ]
    assert len(results[0]) == 3 and results[0] == results[1]
