"""Folders of bsuite from elsewhere: nothing in them runs code, or leads out of them."""

import json
import os
import sys
from pathlib import Path
from random import Random

import pytest
from suites import INFO, RUN, write_record, write_suite
from tiers import quick_first
from wording import refused

import rlcli
from rlcli.errors import RlcliError
from rlcli.studies.bsuite.suite_files import find_suite


@pytest.fixture
def suite(folder):
    """The folder of a sweep with a run that has not finished."""
    return write_suite(folder / "suite")


def add_module(folder):
    """A recipe that imports a module beside it, which creates a file."""
    marker = folder / "marker"
    (folder / "evil.py").write_text(
        f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
        "from rlcli.updaters.presets import *\ndef make():\n    raise RuntimeError\n"
    )
    (folder / "evil.yaml").write_text("environment: CartPole-v1\nupdater: evil:make\n")
    return folder / "evil.yaml", marker


@pytest.mark.parametrize("place", ["source", "set"])
def test_a_recipe_that_the_folder_names_imports_no_module(place, folder, monkeypatch):
    """In the process that trains a run, which is a real one."""
    recipe, marker = add_module(folder)
    fields = {"source": str(recipe)}
    if place == "set":
        fields = {"set": ["updater=evil:make"]}
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
    fields |= {"cell": "bandit-0", "chosen": ["bandit/0"]}
    suite = write_suite(folder / "suite", **fields)
    data = rlcli.bsuite(suite, resume=True, jobs=1)
    assert "would import code from outside rlcli" in data["notes"][0]
    assert "pass `--trust`" in data["notes"][0]
    assert not marker.exists()


def test_a_foreign_run_is_resumed_with_the_trust_of_the_user(suite, monkeypatch):
    """Whatever its `run.json` says: it may have been written elsewhere."""
    (suite / "runs" / RUN / "run.json").write_text(
        '{"status": "running", "imports": ["evil:make"]}'
    )
    trusts = []

    def keep(cells, *, trust, **keywords):
        trusts.append(trust)

    monkeypatch.setattr("rlcli.studies.train_study.train_cells", keep)
    rlcli.bsuite(suite, resume=True)
    rlcli.bsuite(suite, resume=True, trust=True)
    assert trusts == [None, True]  # each run decides by its own signature


def test_runs_that_were_there_before_are_no_runs_of_a_new_sweep(tmp_path):
    (tmp_path / "new" / "runs" / "bandit-0").mkdir(parents=True)
    with pytest.raises(RlcliError, match="contains a sweep already"):
        rlcli.bsuite("dqn_catch", ["bandit/0"], run=tmp_path / "new")


@pytest.mark.parametrize("name", ["results", f"runs/{RUN}", "runs", "study.json"])
def test_no_folder_or_file_is_used_through_a_link(name, suite, tmp_path, capsys):
    victim = tmp_path / "victim"
    (suite / name).rename(victim) if (suite / name).exists() else victim.mkdir()
    before = sorted(each.name for each in tmp_path.rglob("victim/**/*"))
    (suite / name).symlink_to(victim)
    for options in ([], ["--resume"]):
        error = refused("bsuite", suite, *options, capsys=capsys)
        assert f"{name}` cannot be used: it is a symbolic link" in error
    assert sorted(each.name for each in tmp_path.rglob("victim/**/*")) == before


@pytest.mark.parametrize("name", ["scores.json", "scores.md", "radar.png"])
def test_scores_are_not_written_through_a_link(name, suite, tmp_path, capsys):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (suite / name).symlink_to(victim)
    assert "symbolic link" in refused("bsuite", suite, capsys=capsys)
    assert victim.read_text() == "precious"


def test_a_pipe_in_place_of_the_record_is_not_waited_for(suite, capsys):
    (suite / "study.json").unlink()
    os.mkfifo(suite / "study.json")
    error = refused("bsuite", suite, "--resume", capsys=capsys)
    assert "not a regular file" in error


def test_the_runs_of_ids_follow_from_the_chosen_ids_not_from_the_file(suite):
    ids = {"catch/0": ["../../elsewhere", 0]}
    write_record(suite, INFO | {"ids": ids})
    data = rlcli.bsuite(suite)
    (catch,) = data["experiments"]
    assert catch["ids"] == 2
    found = find_suite(Path(suite))
    assert found is not None
    assert found.place_ids() == {"catch/0": (RUN, 0), "catch/1": (RUN, 1)}


VALUES = [None, True, -1, 10**30, 1.5, float("nan"), "", "../..", [], [1], {}, "nope"]


@pytest.mark.parametrize("field", quick_first([*INFO], quick=3))
def test_a_damaged_record_is_one_clear_error(field, suite, capsys):
    for value in VALUES:
        write_record(suite, INFO | {field: value})
        try:
            rlcli.bsuite(suite)
        except RlcliError as error:
            assert "study.json` is damaged: " in error.message
            assert len(error.message) < 500


@pytest.mark.slow
def test_a_damaged_row_is_named(suite):
    path = suite / "runs" / RUN / "metrics.jsonl"
    first, second = map(json.loads, path.read_text().splitlines())
    random, messages = Random(0), set()
    for _ in range(60):
        row = dict(second)
        name = random.choice([*row])
        row[name] = random.choice(VALUES)
        if random.random() < 0.2:
            del row[name]
        path.write_text(f"{json.dumps(first)}\n{json.dumps(row)}\n")
        try:
            rlcli.bsuite(suite)
        except RlcliError as error:
            messages.add(error.message)
    assert messages
    assert all(text.startswith(f"`{path}`, line 2: ") for text in messages)
    for name in ("total_regret", "total_return"):
        rows = [
            {k: v for k, v in each.items() if k != name} for each in (first, second)
        ]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        try:
            rlcli.bsuite(suite)
        except RlcliError as error:
            assert name == "total_regret"
            assert "have no results `total_regret`" in error.message
