"""Snapshots: what the files of a run hold, and what is refused in somebody else's."""

import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from wording import mentions

import rlcli
from rlcli import recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.loop import make_loop
from rlcli.runs import checkpoint, snapshots
from rlcli.runs.creation import create_run
from rlcli.runs.frozen import FrozenSeed
from rlcli.runs.run_folder import Run
from rlcli.training.experiment.experiment import Experiment

DATA = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": {"name": "mlp", "layers": [8]},
    "replay": {"name": "uniform", "capacity": 32, "batch_size": 4},
    "updater": "q_learning",
    "train": {"steps": 1_000, "seeds": 2, "seed": 3},
}
HOST = {**DATA, "environment": "gymnasium/CartPole-v1"}


def begin_experiment(folder: Path, data=DATA) -> Experiment:
    parsed = recipe.load_recipe(data)
    experiment = Experiment(parsed, build(parsed)._replace(devices=1))
    experiment.program.begin()
    experiment.save_checkpoint(create_run("mine", run=folder))
    return experiment


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Experiment:
    folder = tmp_path_factory.mktemp("runs") / "run"
    found = begin_experiment(folder)
    found.folder = folder
    return found


@pytest.fixture
def policy(experiment, tmp_path) -> Path:
    """A policy file of one's own to spoil."""
    copied = shutil.copy(experiment.folder / "policy.pkl.lz4", tmp_path / "p.pkl.lz4")
    return Path(copied)


@pytest.fixture
def saved_checkpoint(experiment, tmp_path) -> Path:
    """A checkpoint of one's own to spoil."""
    name = "checkpoints/000000000.pkl.lz4"
    return Path(shutil.copy(experiment.folder / name, tmp_path / "c.pkl.lz4"))


def spoilt(path: Path, **changes) -> Path:
    """The same file with other entries; those that are None are left out."""
    content = {**checkpoint.read(path), **changes}
    checkpoint.write(path, {k: v for k, v in content.items() if v is not None})
    return path


def test_a_policy_comes_back_with_its_recipe_and_where_it_was_taken(policy, experiment):
    found = snapshots.load_snapshot(policy)
    assert found.recipe == experiment.recipe
    assert (found.seeds, found.steps, found.returns) == ((3, 4), (0, 0), ())
    expected = checkpoint.flatten_tree(experiment.acting_state())
    assert set(found.acting) == set(expected)
    for name, leaf in expected.items():
        np.testing.assert_array_equal(found.acting[name], leaf)


def test_a_checkpoint_gives_the_policy_of_its_moment(policy, saved_checkpoint):
    ours, theirs = (
        snapshots.load_snapshot(saved_checkpoint),
        snapshots.load_snapshot(policy),
    )
    ours, theirs = ours._replace(learner=()), theirs._replace(learner=())
    assert ours._replace(acting=None) == theirs._replace(acting=None)
    for name, leaf in theirs.acting.items():
        np.testing.assert_array_equal(ours.acting[name], leaf)


def test_the_tree_that_acts_comes_back_from_its_paths(policy, experiment):
    found = snapshots.load_snapshot(policy)
    tree = snapshots.restore_acting(found, experiment.setup, policy)
    jax.tree.map(np.testing.assert_array_equal, tree, experiment.acting_state())


@pytest.mark.parametrize("data", [DATA, HOST], ids=["native", "host"])
@pytest.mark.slow
def test_progress_comes_back_to_the_bit(data, tmp_path):
    experiment = begin_experiment(tmp_path / "run", data)
    latest = Run(tmp_path / "run").latest_checkpoint()
    saved = snapshots.read_checkpoint(latest)
    progress, sentence = snapshots.restore_progress(
        saved, experiment.recipe, experiment.setup, make_loop(experiment.setup)
    )
    assert (saved.metrics, saved.frozen, sentence) == ({}, {}, "")
    loop = experiment.program.loop
    both = (progress, experiment.program.progress)
    ours, theirs = (checkpoint.flatten_tree(loop.save(each)) for each in both)
    assert set(ours) == set(theirs)
    assert all(ours[name].tobytes() == leaf.tobytes() for name, leaf in theirs.items())


@pytest.mark.slow
def test_equal_progress_gives_equal_bytes_wherever_and_whenever(experiment, tmp_path):
    begin_experiment(tmp_path / "elsewhere")
    for path in experiment.folder.rglob("*.lz4"):
        other = tmp_path / "elsewhere" / path.relative_to(experiment.folder)
        assert other.read_bytes() == path.read_bytes()


def frozen_entry(**changes) -> dict:
    return {"step": 1, "reason": "the loss", "environment": False} | changes


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        {},
        {"kind": "policy"},
        {"kind": ["policy"]},
        {"kind": "image", "recipe": "", "seeds": [1]},
    ],
)
def test_a_well_made_file_of_something_else_is_refused(content, tmp_path):
    path = tmp_path / "x.pkl.lz4"
    checkpoint.write(path, content)
    with pytest.raises(RlcliError, match="is neither a checkpoint nor a policy of"):
        snapshots.load_snapshot(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": 3},
        {"recipe": None},
        {"seeds": []},
        {"seeds": "34"},
        {"seeds": [3.0, 4.0]},
        {"seeds": [3]},
        {"seeds": [3, -1]},
        {"seeds": [3, 2**32]},
        {"steps": [0, 2**60]},
        {"steps": [0]},
        {"episodes": [0, None]},
        {"returns": [1, 2]},
        {"returns": [1.0]},
        {"returns": 3},
        {"acting": []},
        {"acting": {"q/linear/w": "zeros"}},
        {"more": 1},
        {"frozen": []},
        {"frozen": {"5": frozen_entry()}},
        {"frozen": {"3": "the loss"}},
        {"frozen": {"3": {"step": 1, "reason": "the loss"}}},
        {"frozen": {"3": frozen_entry(step=-1)}},
        {"frozen": {"3": frozen_entry(step=True)}},
        {"frozen": {"3": frozen_entry(reason="\x1b[2J")}},
        {"frozen": {"3": frozen_entry(reason="long " * 1_000)}},
    ],
)
def test_a_policy_file_with_something_amiss_is_refused_in_a_sentence(changes, policy):
    with pytest.raises(RlcliError) as caught:
        snapshots.load_snapshot(spoilt(policy, **changes))
    assert "\n" not in caught.value.message
    assert str(policy) in caught.value.message


def test_the_record_of_frozen_seeds_comes_back(policy, saved_checkpoint):
    for path in (policy, saved_checkpoint):
        spoilt(path, frozen={"4": frozen_entry(step=9)})
        found = snapshots.load_snapshot(path)
        assert found.frozen == {4: FrozenSeed(9, "the loss")}


def test_tensors_that_do_not_fit_the_recipe_are_named(policy, experiment):
    acting = checkpoint.read(policy)["acting"]
    acting["q/linear/w"] = acting["q/linear/w"][..., :3]
    found = snapshots.load_snapshot(spoilt(policy, acting=acting))
    with pytest.raises(RlcliError, match="q/linear/w"):
        snapshots.restore_acting(found, experiment.setup, policy)
    with pytest.raises(RlcliError, match="q/linear/w"):
        rlcli.eval(policy)


def test_tensors_that_are_missing_are_named(policy, saved_checkpoint):
    acting = checkpoint.read(policy)["acting"]
    del acting["q/linear_1/b"]
    with pytest.raises(RlcliError, match="q/linear_1/b"):
        rlcli.eval(spoilt(policy, acting=acting))
    progress = checkpoint.read(saved_checkpoint)["progress"]
    del progress["agent/learner/params/q/linear/b"]
    with pytest.raises(RlcliError, match="agent/learner/params/q/linear/b"):
        rlcli.eval(spoilt(saved_checkpoint, progress=progress))


def test_a_policy_file_is_not_a_checkpoint_to_resume_from(policy):
    with pytest.raises(RlcliError, match="policy file: expected a checkpoint"):
        snapshots.read_checkpoint(policy)


def test_a_recipe_that_is_none_is_refused_with_the_name_of_its_file(policy):
    with pytest.raises(RlcliError) as caught:
        snapshots.load_snapshot(spoilt(policy, recipe="updater: q_learning\n"))
    assert mentions(caught.value.message, f"`{policy}`", "recipe", "no `environment`")
    with pytest.raises(RlcliError) as caught:
        snapshots.load_snapshot(spoilt(policy, recipe="a: &a [*a]\n"))
    assert caught.value.message.startswith(str(policy))


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module that tells when it is imported."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "trap_of_theirs.py").write_text(
        "import pathlib\n"
        "pathlib.Path(__file__).with_name('sprung').touch()\n"
        "def network(obs):\n"
        "    import haiku as hk\n"
        "    return hk.Linear(2)(obs)\n"
    )
    monkeypatch.syspath_prepend(folder)
    yield folder / "sprung"
    sys.modules.pop("trap_of_theirs", None)


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("network", "trap_of_theirs:network"),
        ("environment", "trap_of_theirs:network"),
        ("environment", "gymnasium/trap_of_theirs:Trap-v0"),
        ("updater", "trap_of_theirs:network"),
        ("optimizer", "trap_of_theirs:network"),
    ],
)
def test_a_files_recipe_imports_nothing_of_its_authors_unless_trusted(
    section, value, policy, saved_checkpoint, trap
):
    for path in (policy, saved_checkpoint):
        data = recipe.resolve(recipe.load_recipe(DATA)) | {section: value}
        spoilt(path, recipe=recipe.dump_recipe(data))
        for use in (rlcli.eval, rlcli.render, snapshots.load_snapshot):
            with pytest.raises(RlcliError) as caught:
                use(path)
            assert "would import code" in caught.value.message
            assert "--trust" in caught.value.hint
    assert not trap.exists()


@pytest.mark.slow
def test_who_trusts_a_file_plays_its_authors_network(policy, trap):
    data = recipe.resolve(recipe.load_recipe(DATA)) | {
        "network": "trap_of_theirs:network"
    }
    content = checkpoint.read(policy)
    acting = {
        "q/linear/w": np.zeros((2, 4, 2), np.float32),
        "q/linear/b": np.zeros((2, 2), np.float32),
    }
    checkpoint.write(
        policy, content | {"recipe": recipe.dump_recipe(data), "acting": acting}
    )
    assert rlcli.eval(policy, episodes=2, trust=True)["episodes"] == 2
    assert trap.exists()


def test_a_run_whose_recipe_imports_code_is_not_resumed_without_trust(tmp_path, trap):
    begin_experiment(tmp_path / "run")
    data = recipe.resolve(recipe.load_recipe(DATA)) | {
        "network": "trap_of_theirs:network"
    }
    (tmp_path / "run" / "resolved.yaml").write_text(recipe.dump_recipe(data))
    with pytest.raises(RlcliError) as caught:
        rlcli.resume(tmp_path / "run", quiet=True)
    assert "--trust" in caught.value.hint
    assert not trap.exists()
