"""Locate: runs and policies by the paths that a user may write."""

from pathlib import Path

import pytest
from folders import finish_run

import rlcli
from rlcli.errors import RlcliError
from rlcli.evaluation.targets import is_policy_path, is_recipe
from rlcli.runs.creation import create_run
from rlcli.runs.locate import (
    choose_among,
    locate_checkpoint,
    locate_policy,
    locate_run,
)

pytestmark = pytest.mark.usefixtures("folder")


def test_a_run_may_be_named_in_every_way(folder, monkeypatch):
    old, new = finish_run(create_run("dqn"), 100), finish_run(create_run("dqn"), 100)
    assert locate_policy(new.folder) == (new, new.policy)
    assert locate_policy("runs/dqn") == (new, new.policy)
    assert locate_policy(old.policy) == (old, old.policy)
    assert locate_policy(old.checkpoint(100)) == (old, old.checkpoint(100))
    assert locate_run(old.checkpoint(100)) == old
    assert locate_run(old.checkpoints) == old
    assert locate_run(f"{old.folder}/") == old
    monkeypatch.chdir(old.checkpoints)
    run, file = locate_policy("000000100.pkl.lz4")
    assert run is not None
    assert run.folder.samefile(folder / old.folder)
    assert file.exists()
    assert locate_run(".").folder.samefile(folder / old.folder)


def test_the_newest_run_is_the_one_that_started_last(noon):
    names = [create_run("dqn").folder.name for _ in range(11)]
    assert names[-1] == "2026-11-20T10-00-00-11"
    assert locate_run("runs/dqn").folder.name == names[-1]
    create_run("dqn", run="runs/dqn/2026-11-20T09-59-59")
    assert locate_run("runs/dqn").folder.name == names[-1]
    create_run("dqn", run="runs/dqn/2026-11-20T10-00-01")
    assert locate_run("runs/dqn").folder.name == "2026-11-20T10-00-01"


def test_a_named_run_is_as_old_as_its_record_says(noon):
    first = create_run("dqn", name="first")
    create_run("dqn", run="runs/dqn/2026-11-20T09-59-59")
    assert locate_run("runs/dqn") == first
    create_run("dqn", run="runs/dqn/2026-11-20T10-00-01_b=1")
    assert locate_run("runs/dqn").folder.name == "2026-11-20T10-00-01_b=1"
    choice = choose_among(Path("runs/dqn"))
    assert choice is not None
    assert (choice.run.name, choice.count) == ("2026-11-20T10-00-01_b=1", 3)
    assert choose_among(first.folder) is choose_among(Path("runs")) is None


def test_the_overrides_in_the_name_of_a_folder_may_be_omitted(noon):
    run = finish_run(create_run("dqn", overrides=["a.b=1"]), 100)
    path = run.folder.with_name("2026-11-20T10-00-00")
    assert locate_run(path).folder == run.folder.absolute()
    assert locate_policy(path)[1] == run.policy.absolute()
    create_run("dqn", overrides=["a.b=2"])
    with pytest.raises(RlcliError, match="matches 2 runs") as refused:
        locate_run(path)
    assert "10-00-00_b=1`, `" in refused.value.hint
    with pytest.raises(RlcliError, match="there is no file or folder"):
        locate_run(path.with_name("2026-11-20T10-00"))


def test_a_single_file_belongs_to_no_run(folder):
    alone = folder / "policy.pkl.lz4"
    alone.write_bytes(b"")
    assert locate_policy(alone) == (None, alone)
    with pytest.raises(RlcliError, match="does not belong to a run"):
        locate_run(alone)


@pytest.mark.parametrize("locate", [locate_policy, locate_checkpoint, locate_run])
def test_a_recipe_is_no_run_but_that_of_a_run_belongs_to_it(folder, locate):
    (folder / "my recipe.yaml").touch()
    with pytest.raises(RlcliError, match=r"`my recipe\.yaml` is a recipe") as error:
        locate("my recipe.yaml")
    assert "`rlcli train 'my recipe.yaml'`" in error.value.hint
    run = finish_run(create_run("dqn"), 100)
    assert locate_run(run.recipe) == run


def test_a_run_without_a_policy_file_uses_its_latest_checkpoint():
    run = create_run("dqn")
    with pytest.raises(RlcliError, match="has no policy yet"):
        locate_policy(run.folder)
    finish_run(run, 100).policy.unlink()
    assert locate_policy(run.folder) == (run, run.checkpoint(100))


def test_the_best_policy_requires_an_evaluation():
    run = finish_run(create_run("dqn"), 100)
    with pytest.raises(RlcliError, match="no best policy") as refused:
        locate_policy(run.folder, best=True)
    assert "train.evaluate" in refused.value.hint
    run.best.write_bytes(b"")
    assert locate_policy("runs/dqn", best=True) == (run, run.best)
    assert locate_policy(run.best, best=True) == (run, run.best)
    with pytest.raises(RlcliError, match="is a file"):
        locate_policy(run.policy, best=True)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("runs/dqn_cartpol", "runs/dqn_cartpole"),
        ("runs/dqn_cartpol/2026-11-20T10-00-00", "runs/dqn_cartpole"),
        ("dqn_cartpole", "runs/dqn_cartpole"),
        ("run/dqn_cartpole", "runs"),
    ],
)
def test_a_missing_path_is_refused_with_the_nearest_name(wrong, right):
    create_run("dqn_cartpole")
    with pytest.raises(RlcliError, match="there is no") as refused:
        locate_policy(wrong)
    assert f"`{wrong}`" in refused.value.message
    assert refused.value.hint == f"did you mean `{right}`?"


def test_a_link_to_nothing_is_named_and_never_suggested(tmp_path):
    link = tmp_path / "newest"
    link.symlink_to("moved")
    for name in ("newest", "newest/checkpoints"):
        with pytest.raises(RlcliError, match="no file or folder") as refused:
            locate_run(tmp_path / name)
        assert refused.value.hint == f"`{link}` is a link to `moved`, which is missing"
    with pytest.raises(RlcliError, match="no file or folder") as refused:
        locate_run(tmp_path / "newer")
    assert "newest" not in refused.value.hint


def test_a_folder_without_a_run_is_refused_with_folders_that_have_runs(folder):
    create_run("dqn")
    with pytest.raises(
        RlcliError, match="`runs` is not the folder of a run"
    ) as refused:
        locate_policy("runs")
    assert "`runs/dqn`" in refused.value.hint
    (folder / "empty").mkdir()
    with pytest.raises(RlcliError, match="`empty` is not the folder of a run"):
        locate_policy("empty")
    with pytest.raises(
        RlcliError, match="no file or folder `nowhere at all`"
    ) as refused:
        locate_policy("nowhere at all")
    assert "rlcli train" in refused.value.hint


def test_a_link_to_a_run_elsewhere_is_not_chosen_but_may_be_named(folder):
    elsewhere = finish_run(create_run("dqn", run="mine"), 100)
    Path("received").mkdir()
    link = Path("received", "2099-01-01T00-00-00")
    link.symlink_to(elsewhere.folder.absolute())
    with pytest.raises(RlcliError, match="`received` is not the folder of a run"):
        locate_run("received")
    assert locate_run(link).folder == link
    theirs = finish_run(create_run("dqn", run="received/a"), 100)
    assert locate_run("received") == theirs


@pytest.mark.parametrize("name", ["x" * 300, "runs/" + "x" * 300, "a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_one_error_of_every_function(name, folder):
    functions = (rlcli.show, rlcli.runs, rlcli.plot, rlcli.compare, rlcli.trust)
    for function in (*functions, rlcli.load, rlcli.watch, is_policy_path, is_recipe):
        try:
            assert not function(name) or function is is_policy_path
        except RlcliError as error:
            assert len(error.message) < 700
