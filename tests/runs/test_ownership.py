"""Whose code runs without `--trust`: the user's own, and nothing that was changed."""

import json
import os
import py_compile
import shutil
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

import rlcli
from rlcli import recipe
from rlcli.errors import RlcliError
from rlcli.recipe import documents
from rlcli.registry import user_code
from rlcli.runs import code, ownership, signed_code
from rlcli.runs.creation import create_run
from rlcli.runs.run_folder import Run

TEXT = "environment: CartPole-v1\nupdater: ppo\noptimizer: own_module:mine\n"
MODULE = "import optax\nVALUE = 1\ndef mine(*, rate: float = 0.5):\n"
MODULE += "    return optax.sgd(rate)\n"


@pytest.fixture(autouse=True)
def _user(tmp_path, monkeypatch):
    """A user of rlcli without a key, and without trusted folders."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.fixture
def lab(tmp_path, fresh_imports):
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "own_module.py").write_text(MODULE)
    (folder / "r.yaml").write_text(TEXT)
    return folder


@pytest.fixture
def run(lab):
    """A run that the user's rlcli has signed."""
    return sign_new_run(lab)


def sign_new_run(lab):
    loaded = recipe.load_recipe(lab / "r.yaml")
    created = create_run("r", run=lab.parent / "runs/a", resolved=loaded.resolved_text)
    fields = code.copy_code(created, loaded)
    created.write_info(**fields, **code.sign_run(created, loaded, fields["code"]))
    sys.modules.pop("own_module")
    user_code.search_first()
    return created


def admit(folder, trust=None, **changes):
    """What the recipe of a run may do, with other sections if they are given."""
    text = Path(folder, "resolved.yaml").read_text()
    data = {**documents.load_document(text, source="").data, **changes}
    return code.admit_code(Path(folder), [data], trust)


def forge(run, **fields):
    """Changes fields of `run.json` as another program could."""
    info = json.loads(run.info.read_text())
    run.info.write_text(json.dumps(info | fields))


def imported():
    """The value in the module that is imported now."""
    sys.modules.pop("own_module", None)
    return user_code.import_module("own_module").VALUE


def test_a_run_of_the_user_is_trusted_with_the_files_where_they_were(run, lab):
    admission = admit(run.folder)
    assert admission.code and admission.trackers and admission.warning == ""
    assert imported() == 1
    assert sys.modules["own_module"].__file__ == str(lab / "own_module.py")
    assert not run.needs_trust("eval") and "--trust" not in run.command("resume")


def test_the_key_is_the_users_alone(run):
    status = ownership.key_file().stat()
    assert (status.st_mode & 0o777, status.st_uid, status.st_size) == (
        *(0o600, os.geteuid()),
        32,
    )


def test_no_trust_wins_over_a_signature_and_a_trusted_folder(run):
    rlcli.trust(run.folder)
    assert not admit(run.folder, trust=False).code


def test_a_run_whose_files_have_changed_uses_the_copies_that_were_signed(run, lab):
    (lab / "own_module.py").write_text(MODULE.replace("VALUE = 1", "VALUE = 2"))
    assert "has changed since training" in admit(run.folder).warning
    assert imported() == 1


def test_neither_bytecode_nor_modules_beside_the_copies_are_imported(run, lab):
    (lab / "own_module.py").unlink()
    (run.code / "beside.py").write_text("raise SystemExit\n")
    (run.code / "own_module.so").write_bytes(b"")
    (run.code / "__pycache__").mkdir()
    assert admit(run.folder).code
    assert imported() == 1
    place = Path(sys.modules["own_module"].__file__).parent
    assert [p.name for p in place.glob("*.*")] == ["own_module.py"]
    assert place.stat().st_mode & 0o077 == 0


def test_bytecode_beside_the_users_files_is_not_imported(run, lab, tmp_path):
    source, other = lab / "own_module.py", tmp_path / "other.py"
    other.write_text(MODULE.replace("VALUE = 1", "VALUE = 9"))
    time = source.stat().st_mtime_ns
    os.utime(other, ns=(time, time))
    bytecode = Path(cache_from_source(str(source)))
    py_compile.compile(str(other), cfile=str(bytecode))
    before = bytecode.read_bytes()
    assert admit(run.folder).code
    assert imported() == 1
    assert bytecode.read_bytes() == before


@pytest.mark.parametrize("name", ["absent.py", "absent/__init__.py", "colorsys.py"])
def test_a_module_placed_beside_the_users_files_is_not_imported(lab, name):
    lines = "VALUE = 1", "try:", "    from absent import VALUE", "except ImportError:"
    lines += "    pass", "import colorsys", 'VALUE = getattr(colorsys, "VALUE", VALUE)'
    text = MODULE.replace("VALUE = 1", "\n".join(lines))
    (lab / "own_module.py").write_text(text)
    run = sign_new_run(lab)
    assert admit(run.folder).warning == "" and imported() == 1
    (lab / name).parent.mkdir(exist_ok=True)
    (lab / name).write_text("VALUE = 9\n")
    sys.modules.pop("colorsys")
    admission = admit(run.folder)
    assert admission.code and f"`{lab / name}` has changed" in admission.warning
    assert imported() == 1
    shutil.rmtree(run.code)
    sys.modules.pop("colorsys", None)
    assert not admit(run.folder).code


def test_a_module_that_is_a_link_is_the_users_own(lab, tmp_path):
    (lab / "own_module.py").rename(tmp_path / "shared.py")
    (lab / "own_module.py").symlink_to("../shared.py")
    run = sign_new_run(lab)
    admission = admit(run.folder)
    assert admission.code and admission.warning == ""
    assert imported() == 1


def test_a_copy_without_end_is_not_read(run, lab):
    (lab / "own_module.py").unlink()
    os.truncate(run.code / "own_module.py", 2**40)
    assert not admit(run.folder).code


def test_a_changed_copy_is_not_trusted(run, lab):
    (lab / "own_module.py").unlink()
    (run.code / "own_module.py").write_text("VALUE = 3\n")
    assert not admit(run.folder).code


def test_a_changed_record_of_code_is_not_trusted(run, lab):
    evil = lab / "evil.py"
    evil.write_text("VALUE = 3\n")
    record = run.read_info()["code"]
    entry = {"sha256": signed_code.hash_file(evil), "source": str(evil)}
    for changed in ({"own_module.py": entry}, {**record, "evil.py": entry}, {}):
        forge(run, code=changed)
        assert not admit(run.folder).code
    forge(run, code=record)
    assert admit(run.folder).code


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "own_module:other"},
        {"environment": "own_module:mine"},
        {"optimizer": {"name": "own_module:mine", "rate": 0.25}},
        {"train": {"hooks": ["own_module:mine"]}},
    ],
)
def test_a_changed_recipe_is_not_trusted(run, changes):
    assert not admit(run.folder, **changes).code


def test_one_changed_recipe_among_those_that_are_loaded_is_not_trusted(run):
    """The recipe in a checkpoint is loaded as well as that of the folder."""
    data = documents.load_document(run.read_resolved(), source="").data
    other = {**data, "optimizer": "own_module:other"}
    assert not code.admit_code(run.folder, [data, other], None).code


def test_a_longer_run_is_trusted_but_not_its_new_trackers(run):
    data = documents.load_document(run.read_resolved(), source="").data
    longer = {**data["train"], "steps": 10**9}
    assert admit(run.folder, train=longer).trackers
    admission = admit(run.folder, train={**longer, "trackers": [{"name": "wandb"}]})
    assert admission.code and not admission.trackers


def test_a_moved_run_is_trusted_while_the_users_files_are_where_they_were(run, lab):
    moved = lab.parent / "elsewhere"
    run.folder.rename(moved)
    assert admit(moved).code and not admit(moved).trackers
    (lab / "own_module.py").write_text("VALUE = 2\n")
    assert not admit(moved).code  # the copies are those of a folder from elsewhere
    assert Run(moved).needs_trust("eval")


def test_a_run_that_was_moved_with_its_files_is_trusted_with_what_was_signed(run, lab):
    (lab.parent / "moved").mkdir()
    shutil.move(lab, lab.parent / "moved/lab")
    shutil.move(lab.parent / "runs", lab.parent / "moved/runs")
    moved = lab.parent / "moved/runs/a"
    (lab.parent / "moved/lab/optax.py").write_text("raise SystemExit\n")
    admission = admit(moved)
    assert admission.code and not admission.trackers
    assert not Run(moved).needs_trust("eval")
    assert imported() == 1  # not what lies beside the file
    source = admission.signed["own_module.py"]["source"]
    assert source == str(lab.parent / "moved/lab/own_module.py")
    Path(source).write_text("VALUE = 2\n")
    assert not admit(moved).code and Run(moved).needs_trust("eval")


def test_a_signature_in_another_run_gives_it_nothing(run, lab, tmp_path):
    evil = tmp_path / "evil"
    shutil.copytree(run.folder, evil)
    text = run.read_resolved().replace("own_module:mine", "own_module:other")
    (evil / "resolved.yaml").write_text(text)
    assert not admit(evil).code
    (evil / "resolved.yaml").write_text(run.read_resolved())
    (evil / "code/own_module.py").write_text("VALUE = 3\n")
    assert admit(evil).code and imported() == 1  # the user's own file


def test_a_run_with_the_hashes_of_the_users_files_but_no_signature_is_not_trusted(run):
    """Who knows a file of the user cannot call its functions: it is not signed."""
    forge(run, signature=None)
    assert not admit(run.folder).code


@pytest.mark.parametrize(
    "signature",
    ["", "null", "[]", "{}", "1", "[" * 100_000, '{"mac": 1}', "\ud800"],
)
def test_a_damaged_signature_is_none(run, signature):
    forge(run, signature=signature)
    assert not admit(run.folder).code


def test_each_claim_is_signed(run):
    signed = json.loads(run.read_info()["signature"])
    for name in signed:
        forge(run, signature=json.dumps({**signed, name: "0" * 64}))
        assert not admit(run.folder).code, name


def test_a_signature_of_another_key_is_none(run):
    ownership.key_file().write_bytes(bytes(32))
    assert not admit(run.folder).code


@pytest.mark.parametrize("spoil", ["mode", "symbolic", "hard", "pipe", "short"])
def test_a_key_that_others_can_have_is_not_used(run, spoil, tmp_path):
    key = ownership.key_file()
    if spoil == "mode":
        key.chmod(0o640)
    elif spoil == "hard":
        os.link(key, tmp_path / "other")
    elif spoil == "short":
        key.write_bytes(b"short")
    else:
        key.rename(tmp_path / "other")
        if spoil == "pipe":
            os.mkfifo(key, 0o600)
        else:
            key.symlink_to(tmp_path / "other")
    assert not admit(run.folder).code
    with pytest.raises(RlcliError, match="key` "):
        ownership.sign(run.folder, {}, {})


def test_a_key_of_another_user_is_not_used(run, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not admit(run.folder).code


@pytest.mark.parametrize("place", ["lab", "lab/own_module.py", "lab/__pycache__", ""])
def test_files_that_others_can_change_are_not_the_users_own(run, lab, place):
    (lab / "__pycache__").mkdir(exist_ok=True)
    (lab.parent / place).chmod(0o777)
    moved = lab.parent / "runs/b"
    run.folder.rename(moved)
    assert not admit(moved).code
    (lab.parent / place).chmod(0o755)
    assert admit(moved).code


def test_modules_of_the_current_folder_are_not_found_for_a_run_of_the_user(
    run, tmp_path, monkeypatch
):
    """`cd` into a folder from elsewhere: its modules replace no missing ones."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here/own_extra.py").write_text("")
    monkeypatch.chdir(tmp_path / "here")
    assert admit(run.folder).code
    with pytest.raises(ModuleNotFoundError):
        user_code.import_module("own_extra")


def test_a_trusted_folder_trusts_all_in_it_and_nothing_beside_it(run, lab, tmp_path):
    forge(run, signature=None)
    assert rlcli.trust(run.folder.parent) == [run.folder.parent]
    assert admit(run.folder).code and not run.needs_trust("eval")
    copied = tmp_path / "copied"
    shutil.copytree(run.folder, copied)
    assert not admit(copied).code
    (run.folder.parent / "link").symlink_to(copied)
    assert not admit(run.folder.parent / "link").code
    run.folder.chmod(0o777)
    assert not admit(run.folder).code
    run.folder.chmod(0o755)
    run.code.chmod(0o777)
    assert not admit(run.folder).code
    run.code.chmod(0o755)
    assert rlcli.trust(run.folder.parent, forget=True) == []
    assert not admit(run.folder).code


def test_what_cannot_be_trusted_or_forgotten_is_an_error(tmp_path):
    with pytest.raises(RlcliError, match="there is no folder"):
        rlcli.trust(tmp_path / "missing")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(RlcliError, match="others can change it"):
        rlcli.trust(tmp_path / "open")
    with pytest.raises(RlcliError, match="not among the folders"):
        rlcli.trust(tmp_path, forget=True)


def test_a_file_of_trusted_folders_that_others_can_write_is_not_used(run):
    forge(run, signature=None)
    rlcli.trust(run.folder)
    ownership.trusted_file().chmod(0o622)
    assert not admit(run.folder).code
