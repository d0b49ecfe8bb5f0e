"""Files that earlier versions wrote open with today's code: `README.md` lists them."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pytest
from wording import mentions

import rlcli
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.loop import make_loop
from rlcli.recipe import documents, load_recipe
from rlcli.replays.datasets import dataset_files as dataset_files
from rlcli.results.curves import read_series
from rlcli.runs import checkpoint, provenance, snapshots, study_record
from rlcli.runs.metrics import read_metrics

KEPT = Path(__file__).parent
NEWEST = KEPT / "0.1.0"
JAX = (NEWEST, KEPT / "0.1.0-jax-0.12")  # the same runs, by an old and a new JAX
RUNS = {
    f"{path.parent.parent.name}/{path.parent.name}": path.parent
    for path in sorted(KEPT.glob("*/*/run.json"))
}


def checkpoint_of(run: Path) -> Path:
    (path,) = (run / "checkpoints").iterdir()
    return path


def read_by_the_specification(path: Path) -> dict[str, Any]:
    """The content of a file as docs/formats.md describes it, without rlcli."""
    data = path.read_bytes()
    magic, version, size = struct.unpack_from("<8sIQ", data)
    assert (magic, version) == (b"\x89rlcli\r\n", 1)
    content = lz4.frame.decompress(data[52:])
    assert len(content) == size
    return pickle.loads(content)


def decode(record: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(record["data"], record["dtype"]).reshape(record["shape"])


@pytest.mark.parametrize("name", RUNS)
def test_policies_and_checkpoints_hold_the_arrays_that_were_written(name):
    run = RUNS[name]
    for path, tree in (
        (run / "policy.pkl.lz4", "acting"),
        (run / "best.pkl.lz4", "acting"),
        (checkpoint_of(run), "progress"),
    ):
        written = read_by_the_specification(path)
        read = checkpoint.read(path)
        assert written.keys() == read.keys()
        assert written[tree].keys() == read[tree].keys()
        for key, record in written[tree].items():
            assert read[tree][key].dtype == record["dtype"]
            np.testing.assert_array_equal(read[tree][key], decode(record), key)


@pytest.mark.parametrize("name", ["0.1.0/lake"])
def test_a_policy_acts_by_the_table_that_was_written(name):
    written = read_by_the_specification(RUNS[name] / "policy.pkl.lz4")
    tables = decode(written["acting"]["q/linear/w"])  # [seed, state, action]
    for index, seed in enumerate(written["seeds"]):
        policy = rlcli.load(RUNS[name], seed=seed)
        assert (policy.seed, policy.steps) == (seed, 40)
        table = tables[index]
        values = policy.action_values(np.arange(16))
        np.testing.assert_allclose(values, table, rtol=1e-6)
        has_tie = (table == table.max(-1, keepdims=True)).sum(-1) > 1
        actions, _ = policy.act(np.arange(16))
        expected = table.argmax(-1)
        np.testing.assert_array_equal(actions[~has_tie], expected[~has_tie])


@pytest.mark.parametrize("name", ["0.1.0/cartpole"])
def test_a_policy_with_memory_normalization_and_stacked_frames_acts(name):
    policy = rlcli.load(RUNS[name], seed=1)
    obs = np.array([[0.0, 0.1, 0.0, -0.1]], np.float32)
    action, state = policy.act(obs)
    again, _ = policy.act(obs, state)
    assert {*action.tolist(), *again.tolist()} <= {0, 1}


@pytest.mark.parametrize("name", RUNS)
def test_a_checkpoint_restores_every_array(name):
    path = checkpoint_of(RUNS[name])
    content = snapshots.read_checkpoint(path)
    recipe = load_recipe(documents.load_document(content.recipe).data, is_stored=True)
    setup = build(recipe, content.seeds)
    loop = make_loop(setup)
    progress, message = snapshots.restore_progress(content, recipe, setup, loop)
    restored = checkpoint.flatten_tree(loop.save(progress))
    loop.close(progress)
    written = read_by_the_specification(path)["progress"]
    assert message == ""
    assert written.keys() == restored.keys()
    for key, record in written.items():
        np.testing.assert_array_equal(restored[key], decode(record), key)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_folder_is_shown_with_what_its_files_say(name):
    run = RUNS[name]
    record = rlcli.runs(run)[0]
    info = json.loads((run / "run.json").read_text())
    rows = [
        json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    assert record["status"] == info["status"] == "finished"
    assert record["seeds"] == info["seeds"] == [0, 1]
    assert record["steps"] == rows[-1]["T"]
    means = [row["evaluation"]["mean"] for row in rows[-2:]]
    assert record["return"]["mean"] == pytest.approx(np.mean(means))
    assert record["frozen"] == 0
    assert read_metrics(run) == rows
    series = read_series(run, ["evaluation.mean"])
    text = rlcli.show(str(run))
    assert "finished" in text and info["recipe"] in text
    assert series


@pytest.mark.parametrize("name", ["0.1.0"])
def test_a_sweep_is_shown_with_the_trials_of_its_journal(name, tmp_path):
    pytest.importorskip("optuna")
    folder = tmp_path / "sweep"  # Optuna may lock the journal
    shutil.copytree(KEPT / name / "sweep", folder)
    data = rlcli.show_sweep(folder)
    assert (data["status"], data["total"]) == ("finished", 2)
    assert data["counts"]["complete"] == 2
    journal = (folder / "journal.log").read_text()
    fixed = re.findall(r'"fixed_params":({[^}]*})', journal)
    options = [trial["options"] for trial in data["trials"]]
    assert options == [json.loads(each) for each in fixed]
    for trial in data["trials"]:
        run = folder / "trials" / f"{trial['trial']:04d}"
        last = [
            json.loads(line)
            for line in (run / "metrics.jsonl").read_text().splitlines()
        ][-2:]
        assert trial["seeds"] == [row["evaluation"]["mean"] for row in last]
    best = tmp_path / "best.yaml"
    rlcli.export_sweep(folder, best)
    rate = data["winner"]["options"]["optimizer.learning_rate"]
    assert rlcli.check([best])
    assert f"learning_rate: {rate}" in best.read_text()


def test_a_data_set_holds_the_arrays_that_were_written():
    path = NEWEST / "lake.npz"
    data = dataset_files.load_dataset(path)
    with np.load(path) as written:
        assert json.loads(written["metadata"].item())["format_version"] == 1
        np.testing.assert_array_equal(data.rewards, written["rewards"])
        np.testing.assert_array_equal(data.terminations, written["terminations"])
        assert len(data.rewards) == 12


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_resumed_and_evaluated(name, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(RUNS[name], run)
    before = (run / "metrics.jsonl").read_text()
    rows = read_metrics(run)
    steps, period = rows[-1]["T"], rows[0]["T"]
    rlcli.resume(run, set=[f"train.steps={steps + period}"], quiet=True)
    info = json.loads((run / "run.json").read_text())
    assert (info["status"], info["resumes"][0]["step"]) == ("finished", steps)
    assert (run / "metrics.jsonl").read_text().startswith(before)
    assert read_metrics(run)[-1]["T"] == steps + period
    assert checkpoint_of(run).name == f"{steps + period:09d}.pkl.lz4"
    assert rlcli.eval(run, episodes=2)["seeds"][0]["frozen"] is None


def assert_equal_up_to_rounding(left, right):
    """Counters, keys, actions and other whole numbers are equal, floats nearly."""
    assert left.keys() == right.keys()
    for key, array in left.items():
        assert array.dtype == right[key].dtype
        if np.issubdtype(array.dtype, np.floating):
            np.testing.assert_allclose(array, right[key], 1e-4, 1e-6, err_msg=key)
        else:
            np.testing.assert_array_equal(array, right[key], key)


@pytest.mark.parametrize("name", ["lake", "cartpole"])
def test_two_versions_of_jax_have_written_the_same_up_to_rounding(name):
    old, new = (checkpoint.read(checkpoint_of(folder / name)) for folder in JAX)
    assert old["circumstances"]["versions"]["jax"] == "0.10.2"
    assert new["circumstances"]["versions"]["jax"] == "0.12.0.1"
    assert_equal_up_to_rounding(old["progress"], new["progress"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lake", "cartpole"])
def test_a_run_of_another_jax_continues_as_one_of_this_and_says_so(name, tmp_path):
    ends = []
    for index, folder in enumerate(JAX):
        run = tmp_path / str(index)
        shutil.copytree(folder / name, run)
        written = checkpoint.read(checkpoint_of(run))["circumstances"]["versions"]
        rows = read_metrics(run)
        steps = rows[-1]["T"] + rows[0]["T"]
        rlcli.resume(run, set=[f"train.steps={steps}"], quiet=True)
        (resumed,) = json.loads((run / "run.json").read_text())["resumes"]
        today = provenance.versions()
        assert {
            package: [version, today[package]]
            for package, version in written.items()
            if package in today and version != today[package]
        } == resumed["versions"]
        ends.append(checkpoint.read(checkpoint_of(run))["progress"])
    assert_equal_up_to_rounding(*ends)


def test_every_version_of_every_format_has_a_file():
    runs = [path.read_bytes() for path in KEPT.rglob("*.lz4")]
    studies = [json.loads(path.read_text()) for path in KEPT.rglob("study.json")]
    found = {struct.unpack_from("<8sI", data)[1] for data in runs}
    assert found == {*range(1, checkpoint.FORMAT_VERSION + 1)}
    assert {each["format"] for each in studies} == {*range(1, study_record.FORMAT + 1)}
    versions = set()
    for path in KEPT.rglob("*.npz"):
        with np.load(path) as file:
            versions.add(json.loads(file["metadata"].item())["format_version"])
    assert versions == {*range(1, dataset_files.VERSION + 1)}


def test_the_list_of_kept_files_names_every_folder():
    text = (KEPT / "README.md").read_text()
    folders = {path.name for path in KEPT.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == {*re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)}


def test_newer_versions_are_one_clear_error(tmp_path):
    data = bytearray((NEWEST / "lake" / "policy.pkl.lz4").read_bytes())
    data[8:12] = (checkpoint.FORMAT_VERSION + 1).to_bytes(4, "little")
    policy = tmp_path / "policy.pkl.lz4"
    policy.write_bytes(data)
    with pytest.raises(RlcliError, match="has format version 2, but") as caught:
        rlcli.eval(policy)
    assert mentions(caught.value.hint, "`pip install --upgrade rlcli`")
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    text = (NEWEST / "sweep" / "study.json").read_text()
    (sweep / "study.json").write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(RlcliError, match="has format version 2, but") as caught:
        rlcli.show_sweep(sweep)
    assert mentions(caught.value.hint, "`pip install --upgrade rlcli`")
    with np.load(NEWEST / "lake.npz") as file:
        arrays = dict(file)
    metadata = json.loads(arrays["metadata"].item()) | {"format_version": 2}
    path = tmp_path / "lake.npz"
    np.savez(path, **arrays | {"metadata": np.array(json.dumps(metadata))})
    with pytest.raises(RlcliError, match="has format version 2, but") as caught:
        dataset_files.load_dataset(path)
    assert "upgrade rlcli" in caught.value.hint
