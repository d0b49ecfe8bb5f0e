"""Paths hold, and are shown as typed, whatever folder the code of others enters."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlcli import errors
from rlcli.errors import RlcliError, as_typed, paths_as_typed, quote
from rlcli.registry import user_code
from rlcli.registry.paths import (
    directory,
    enter,
    enter_url,
    keep_directory,
    keep_in_steps,
    resolves,
)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "_typed", {})
    for name in ("home", "engine"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "home")


def test_a_path_is_absolute_and_shown_as_typed(tmp_path):
    folder = enter("my runs/lake")
    assert folder == tmp_path / "home/my runs/lake"
    os.chdir(tmp_path / "engine")
    assert as_typed(str(folder / "run.json")) == "my runs/lake/run.json"
    assert as_typed(str(folder.with_suffix(".npz"))) == "my runs/lake.npz"  # beside it
    assert as_typed(f"{folder.parent.parent}/other") == f"{folder.parent.parent}/other"
    assert str(RlcliError(f"`{folder}` exists", f"see {folder}/a:3")) == (
        "`my runs/lake` exists\n\nhint: see my runs/lake/a:3"
    )
    assert quote(folder / "a", 16) == "`my runs/lake/a`"


@pytest.mark.parametrize(
    ("typed", "text", "shown"),
    [
        (".", "`{home}` and `{home}/a/b`", "`.` and `a/b`"),
        ("a", "`{home}/ab`, `{home}/a.txt` and /x{home}/a", None),
        ("../home/a", "{home}/../home/a: damaged", "../home/a: damaged"),
        ("r.yaml", "{home}/r.yaml:3: no", "r.yaml:3: no"),
    ],
)
def test_only_what_was_typed_is_replaced_in_a_text(typed, text, shown, tmp_path):
    enter(typed)
    text = text.format(home=tmp_path / "home")
    assert paths_as_typed(text) == (text if shown is None else shown)


def test_an_absolute_path_stays_absolute_in_messages(tmp_path):
    folder = enter(tmp_path / "home/runs")
    assert as_typed(str(folder)) == str(folder)


def test_a_function_resolves_files_that_exist_and_new_ones_but_no_names(tmp_path):
    (tmp_path / "home/mine.yaml").write_text("")
    (tmp_path / "home/dqn").mkdir()

    @resolves("runs", recipes="recipe", new=("output",))
    def function(recipe, runs=(), *, output="out", other="mine.yaml"):
        os.chdir(tmp_path / "engine")
        return recipe, runs, output, other, directory()

    home = str(tmp_path / "home")
    expected = f"{home}/mine.yaml", [], tmp_path / "home/out", "mine.yaml", home
    assert function("mine.yaml") == expected
    # The process is where the function has left it: the next call means the same.
    assert os.getcwd() == str(tmp_path / "engine")
    assert function("mine.yaml") == expected
    assert function("dqn", ["mine.yaml", {}], output=None)[:3] == (
        "dqn",  # a built-in recipe, though there is a folder of this name
        [f"{home}/mine.yaml", {}],
        None,
    )
    os.chdir(tmp_path)  # by the program itself
    assert function("home/mine.yaml")[4] == str(tmp_path)
    with pytest.raises(TypeError, match=r"^function\(\) .*unexpected.*'others'"):
        function("mine.yaml", others=1)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///a.db", "sqlite:///{home}/a.db"),
        ("sqlite+pysqlite:///a.db?x=1", "sqlite+pysqlite:///{home}/a.db?x=1"),
        ("./mlruns", "{home}/mlruns"),
        *[(url, url) for url in ("", "databricks", "sqlite:////a.db", "sqlite://")],
        ("postgresql:///runs", "postgresql:///runs"),
        ("https://host/a", "https://host/a"),
    ],
)
def test_the_file_of_a_database_is_absolute(url, expected, tmp_path):
    assert enter_url(url) == expected.format(home=tmp_path / "home")


def test_a_generator_has_the_directory_of_its_call_in_every_step(tmp_path):
    def generate():
        yield directory()
        os.chdir(tmp_path / "engine")
        yield directory()
        yield directory()
        return directory()

    home, found = str(tmp_path / "home"), []
    steps = keep_in_steps(generate())
    found += [next(steps), next(steps), directory()]
    os.chdir(tmp_path)  # by the program itself
    found += [next(steps), directory()]
    assert found == [home, home, home, home, str(tmp_path)]
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == home


def test_a_directory_that_was_removed_is_no_error(tmp_path):
    os.chdir(tmp_path / "engine")
    (tmp_path / "engine").rmdir()
    with keep_directory():
        assert directory() == ""
        assert enter(tmp_path) == tmp_path
        assert str(enter("a")) == "a"


def test_modules_are_found_after_one_has_changed_the_directory(tmp_path, monkeypatch):
    (tmp_path / "home/moving_module.py").write_text(
        f"import os; os.chdir({str(tmp_path / 'engine')!r})"
    )
    (tmp_path / "home/other_module.py").write_text("found = True")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    user_code.search_first()
    with keep_directory():
        user_code.import_module("moving_module")
        assert os.getcwd() == str(tmp_path / "engine")
        assert user_code.import_module("other_module").found
    for name in ("moving_module", "other_module"):
        del sys.modules[name]


def test_each_thread_has_the_directory_of_its_own_call(tmp_path):
    with ThreadPoolExecutor(1) as thread, keep_directory("/elsewhere"):
        assert thread.submit(directory).result() == str(tmp_path / "home")
        assert directory() == "/elsewhere"
