"""Reading: a recipe is one document, which a command reads once."""

import collections

import pytest

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.recipe import documents, load_recipe, read_recipe

BASE = """
environment: FrozenLake-v1
network: {name: mlp, layers: [4]}
replay: {name: uniform, capacity: 50, batch_size: 2}
updater: q_learning
train: {steps: 60, start: 10, log: {every: 30}, checkpoint: null}
"""
CHILD = "extends: base.yaml\ntrain: {seeds: 2}\n"


@pytest.fixture
def reads(tmp_path, monkeypatch):
    """How often each file is read, in a folder with a recipe and its base."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "child.yaml").write_text(CHILD)
    counts = collections.Counter()
    load = documents.load_document

    def load_and_count(text_or_path, *arguments, **keywords):
        counts[getattr(text_or_path, "name", "text")] += 1
        return load(text_or_path, *arguments, **keywords)

    monkeypatch.setattr(documents, "load_document", load_and_count)
    return counts


@pytest.mark.slow
def test_a_training_reads_its_recipe_and_each_base_once(reads, capfd):
    """Whatever asks for them: threads, plans, checks, the loader, the differences."""
    assert main(["train", "child.yaml", "--run", "here", "--quiet"]) == 0
    assert reads == {"child.yaml": 1, "base.yaml": 1}


@pytest.mark.slow
def test_a_study_reads_its_recipe_once_to_train_and_to_sign_it(reads, capfd):
    """The signature is that of what its cells train, whatever the files say by then."""
    varied = ["--vary", "tracer.gamma=0.8,0.9"]
    assert main(["train", "child.yaml", "--run", "here", "--quiet", *varied]) == 0
    assert reads == {"child.yaml": 1, "base.yaml": 1}


def test_a_check_reads_its_recipe_once(reads):
    rlcli.check("child.yaml")
    assert reads == {"child.yaml": 1, "base.yaml": 1}


def test_a_recipe_that_changes_while_a_command_runs_stays_the_same(reads, tmp_path):
    read = read_recipe("child.yaml", ["train.seeds=3"])
    assert (
        read.merged_document.data["train"]["steps"] == 60
    )  # the base is read with the recipe
    (tmp_path / "child.yaml").write_text("{}")
    (tmp_path / "base.yaml").write_text("{}")
    assert load_recipe(read).train.seeds == 3
    assert load_recipe(read, ["train.seeds=4"]).train.seeds == 4
    assert load_recipe(read).train.steps == 60


def test_a_stored_recipe_extends_no_file(reads):
    with pytest.raises(RlcliError, match="extends"):
        load_recipe(read_recipe({"extends": "base.yaml"}, is_stored=True))
    assert not reads
