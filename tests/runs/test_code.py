"""The user code of a run: what is copied, and which code an old run uses."""

import hashlib
import json
import sys

import pytest

from rlcli import recipe
from rlcli.errors import RlcliError
from rlcli.registry import user_code
from rlcli.runs import code
from rlcli.runs.creation import create_run
from rlcli.runs.run_folder import Run

MODULE = """
import optax
from parts.rates import RATE

def mine(*, rate: float = RATE):
    return optax.sgd(rate)
"""


@pytest.fixture
def lab(tmp_path, fresh_imports):
    folder = tmp_path / "lab"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts/__init__.py").write_text("")
    (folder / "parts/rates.py").write_text("RATE = 0.5\n")
    (folder / "mine.py").write_text(MODULE)
    text = "environment: CartPole-v1\nupdater: ppo\noptimizer: mine:mine\n"
    (folder / "r.yaml").write_text(text)
    return folder


@pytest.fixture
def run(lab, tmp_path):
    loaded = recipe.load_recipe(lab / "r.yaml")
    created = create_run("r", run=tmp_path / "run")
    created.write_info(**code.copy_code(created, loaded))
    return created


def rate():
    """The default of the option, in the code that is imported now."""
    for name in ("mine", "parts", "parts.rates"):
        sys.modules.pop(name, None)
    return user_code.import_module("mine").RATE


def test_the_modules_are_copied_with_their_hashes_and_origins(run, lab):
    info = run.read_info()
    assert info["imports"] == ["mine:mine"]
    assert [*info["code"]] == ["mine.py", "parts/__init__.py", "parts/rates.py"]
    for name, entry in info["code"].items():
        data = (lab / name).read_bytes()
        assert (run.code / name).read_bytes() == data
        assert entry["sha256"] == hashlib.sha256(data).hexdigest()
        assert entry["source"] == str(lab / name)


def test_a_recipe_without_user_code_copies_nothing(tmp_path):
    created = create_run("r", run=tmp_path / "run")
    fields = code.copy_code(created, recipe.load_recipe("dqn_cartpole"))
    assert fields == {"imports": [], "trackers": [], "code": {}}
    assert not created.code.exists()


def test_code_in_an_existing_folder_is_not_overwritten(lab, tmp_path):
    (tmp_path / "old/code").mkdir(parents=True)
    (tmp_path / "old/code/mine.py").write_text("precious")
    created = create_run("r", run=tmp_path / "old")
    with pytest.raises(RlcliError, match=r"`.*old/code` exists already"):
        code.copy_code(created, recipe.load_recipe(lab / "r.yaml"))
    created.discard()
    assert (tmp_path / "old/code/mine.py").read_text() == "precious"


def test_a_discarded_run_leaves_no_copy_in_a_folder_that_existed(lab, tmp_path):
    (tmp_path / "old").mkdir()
    created = create_run("r", run=tmp_path / "old")
    created.write_info(**code.copy_code(created, recipe.load_recipe(lab / "r.yaml")))
    assert created.code.is_dir()
    created.discard()
    assert [*(tmp_path / "old").iterdir()] == []


def test_unchanged_code_is_imported_from_its_origin(run, lab):
    assert code.use_code(run) == ""
    assert rate() == 0.5
    assert sys.modules["mine"].__file__ == str(lab / "mine.py")


def test_changed_code_is_imported_from_the_copy_with_a_warning(run, lab):
    (lab / "parts/rates.py").write_text("RATE = 0.25\n")
    message = code.use_code(run)
    assert message == (
        f"`{lab}/parts/rates.py` has changed since training: the run uses its own copy "
        f"in `{run.code}`; remove that folder to use the current code"
    )
    assert rate() == 0.5
    assert sys.modules["mine"].__file__ == str(run.code / "mine.py")


def test_code_that_is_gone_is_imported_from_the_copy_without_a_warning(run, lab):
    (lab / "mine.py").unlink()
    assert code.use_code(run) == ""
    assert rate() == 0.5


def test_without_the_copy_the_current_code_is_used_with_a_warning(run, lab, tmp_path):
    (lab / "parts/rates.py").write_text("RATE = 0.25\n")
    run.code.rename(tmp_path / "away")
    assert code.use_code(run) == f"`{lab}/parts/rates.py` has changed since training"
    assert rate() == 0.25


def test_an_edited_copy_is_reported(run, lab):
    (lab / "mine.py").unlink()
    (run.code / "parts/rates.py").write_text("RATE = 0.125\n")
    expected = f"`{run.code}/parts/rates.py` has changed since training"
    assert code.use_code(run) == expected
    assert rate() == 0.125


def test_a_copy_is_found_without_run_json(run, lab):
    (lab / "mine.py").unlink()
    run.write_info(code={})
    assert code.use_code(run) == ""
    assert rate() == 0.5


@pytest.mark.parametrize(
    "entry", [1, {}, {"sha256": 1, "source": "a"}, {"sha256": "a"}, []]
)
def test_malformed_entries_are_ignored(run, lab, entry):
    run.write_info(
        code={"mine.py": entry, "../x.py": run.read_info()["code"]["mine.py"]}
    )
    assert code.use_code(run) == ""
    assert rate() == 0.5


def test_a_policy_file_without_a_run_imports_modules_beside_it(lab):
    assert code.admit_code(lab / "copied.pkl.lz4", [], True) == (True, True, "", None)
    assert rate() == 0.5


def test_the_next_command_has_the_trust_that_the_run_needs(run, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rlcli"])
    assert run.command("eval").endswith(f"eval {run.folder} --trust")
    (run.folder / "run.json").write_text(json.dumps({"imports": []}))
    assert run.command("resume").endswith(f"resume {run.folder}")
    monkeypatch.chdir(run.folder.parent)
    assert (
        Run(run.folder.relative_to(run.folder.parent))
        .command("eval")
        .endswith("eval run")
    )
