"""The folders of new runs: each is of one process, at the place that is asked for."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from rlcli.errors import RlcliError
from rlcli.runs.creation import create_run
from rlcli.runs.run_folder import Run

pytestmark = pytest.mark.usefixtures("folder")


def test_a_run_lies_under_its_recipe_and_its_time(folder, noon):
    paths = [create_run("dqn").folder for _ in range(3)]
    names = ["2026-11-20T10-00-00", "2026-11-20T10-00-00-2", "2026-11-20T10-00-00-3"]
    assert [str(path) for path in paths] == [f"runs/dqn/{name}" for name in names]
    info = Run(paths[0]).read_info()
    assert info == {
        "recipe": "dqn",
        "status": "created",
        "created": "2026-11-20T10:00:00Z",
        "name": None,
    }


def test_the_folder_of_a_run_has_its_name_or_its_overrides(noon):
    named = [create_run("dqn", name="base", tags=["a"]) for _ in range(2)]
    assert [str(run.folder) for run in named] == ["runs/dqn/base", "runs/dqn/base-2"]
    info = named[0].read_info()
    assert (info["name"], info["tags"]) == ("base", ["a"])
    sets = ["optimizer.learning_rate=5e-4", "train.seeds=3"]
    paths = [create_run("dqn", overrides=sets).folder for _ in range(2)]
    assert [path.name for path in paths] == [
        "2026-11-20T10-00-00_learning_rate=5e-4,seeds=3",
        "2026-11-20T10-00-00-2_learning_rate=5e-4,seeds=3",
    ]


def test_a_named_run_that_never_got_going_leaves_nothing(folder):
    create_run("dqn", name="base").discard()
    assert not (folder / "runs" / "dqn").exists()


def test_two_that_begin_at_once_never_share_a_folder(noon):
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda i: create_run("dqn").folder, range(64)))
    assert len(set(made)) == 64


def test_of_two_that_want_the_same_folder_one_is_refused():
    def attempt(i):
        try:
            return create_run("dqn", run="mine/a")
        except RlcliError as error:
            assert "already contains a run" in error.message
            return None

    with ThreadPoolExecutor(16) as pool:
        made = [run for run in pool.map(attempt, range(64)) if run]
    assert [str(run.folder) for run in made] == ["mine/a"]


def test_a_folder_that_holds_a_run_is_refused_with_the_way_to_go_on(folder):
    (folder / "my run").mkdir()
    create_run("dqn", run="my run")
    with pytest.raises(RlcliError, match="`my run` already contains a run") as refused:
        create_run("dqn", run="my run")
    assert "rlcli resume 'my run'" in refused.value.hint


def test_a_place_where_no_folder_can_be_made_is_named(folder):
    (folder / "file").write_text("")
    for place in ({"runs": "file"}, {"run": "file"}, {"run": "file/below"}):
        with pytest.raises(RlcliError, match=r"`file.*` cannot be created"):
            create_run("dqn", **place)


def test_the_name_of_a_recipe_is_not_a_path():
    for name in ("", "..", "a/b"):
        with pytest.raises(ValueError, match="not a path"):
            create_run(name)
