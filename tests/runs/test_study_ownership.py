"""Which studies are the user's own: what they name is where and as it was."""

import copy
import os
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from rlcli.runs import ownership, study_ownership
from rlcli.runs.study_ownership import is_own_study, sign_study

RECIPE = "extends: base.yaml\nupdater: ppo\noptimizer: own_module:mine\n"
SUFFIX = EXTENSION_SUFFIXES[0]
BASE = "environment: CartPole-v1\n"


@pytest.fixture(autouse=True)
def _user(tmp_path, monkeypatch, fresh_imports):
    """A user of rlcli without a key, in a folder of their own."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def lab(tmp_path):
    """Recipes, and modules that they import, none of which is imported here."""
    folder = tmp_path / "lab"
    (folder / "package").mkdir(parents=True)
    (folder / "own_module.py").write_text(
        "from package import part\nraise SystemExit\n"
    )
    (folder / "package/__init__.py").write_text("raise SystemExit\n")
    (folder / "package/part.py").write_text("raise SystemExit\n")
    (folder / "chosen.py").write_text("raise SystemExit\n")
    (folder / "r.yaml").write_text(RECIPE)
    (folder / "base.yaml").write_text(BASE)
    return folder


@pytest.fixture
def study(tmp_path, lab):
    """The folder of a study, its record, and its signature."""
    folder = tmp_path / "runs/a"
    folder.mkdir(parents=True)
    recipe = str(lab / "r.yaml")
    cell = {"recipe": recipe, "digest": "0", "set": ["network=mlp"], "values": {}}
    search = {"recipe": recipe, "space": "network: {choice: [chosen:net]}", "trials": 3}
    record = {"format": 1, "cells": {"one": cell}, "search": search}
    return folder, record, sign_study(folder, record)


def test_a_study_of_the_user_is_their_own_and_nothing_is_imported(study):
    assert is_own_study(*study)


def test_counters_of_a_search_may_change_and_nothing_else_of_the_record(study):
    folder, record, signature = study
    longer = copy.deepcopy(record)
    longer["search"] |= {"trials": 100, "confirm": 5, "together": 2}
    assert is_own_study(folder, longer, signature)
    for place, change in [
        (("cells", "one"), {"set": ["network=other:net"]}),
        (("cells", "one"), {"recipe": "ppo_cartpole"}),
        (("cells", "one"), {"digest": "1"}),
        (("cells",), {"two": record["cells"]["one"]}),
        (("cells",), {"trials": record["cells"]["one"]}),
        (("cells", "one"), {"trials": 1}),
        (("search",), {"space": "network: {choice: [other:net]}"}),
        ((), {"bsuite": {}}),
    ]:
        changed = copy.deepcopy(record)
        section = changed
        for key in place:
            section = section[key]
        section |= change
        assert not is_own_study(folder, changed, signature), change


@pytest.mark.parametrize(
    "file",
    ["r.yaml", "base.yaml", "own_module.py", "package/part.py", "chosen.py"],
)
def test_a_changed_recipe_base_or_module_is_noticed(study, lab, file):
    text = (lab / file).read_text()
    (lab / file).write_text(f"{text}# changed\n")
    assert is_own_study(*study) == (file.endswith(".yaml"))  # a comment changes no data
    (lab / file).write_text(
        text.replace("mine", "other").replace("CartPole", "Acrobot")
    )
    assert is_own_study(*study) == (not file.endswith(".yaml"))
    (lab / file).unlink()
    assert not is_own_study(*study)


def test_a_module_that_takes_the_place_of_another_is_noticed(study, lab, monkeypatch):
    (lab / "own_module").mkdir()
    (lab / "own_module/__init__.py").write_text("")
    assert not is_own_study(*study)


def test_a_missing_module_that_the_current_folder_has_is_noticed(study, lab):
    text = (lab / "own_module.py").read_text()
    (lab / "own_module.py").write_text(f"import absent\n{text}")
    folder, record, _ = study
    signature = sign_study(folder, record)
    assert is_own_study(folder, record, signature)
    Path("absent.py").write_text("")
    assert not is_own_study(folder, record, signature)


@pytest.mark.parametrize(
    "name",
    ["absent.py", "absent/__init__.py", "absent.pyc", f"absent{SUFFIX}", "colorsys.py"],
)
def test_a_module_placed_beside_those_of_a_study_is_noticed(
    study, lab, name, monkeypatch
):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    text = (lab / "own_module.py").read_text()
    (lab / "own_module.py").write_text(f"import absent, colorsys\n{text}")
    folder, record, _ = study
    signature = sign_study(folder, record)
    assert is_own_study(folder, record, signature)
    (lab / name).parent.mkdir(exist_ok=True)
    (lab / name).write_text("")
    assert not is_own_study(folder, record, signature)


def test_a_module_in_packages_without_init_is_signed(study, lab):
    folder, record, _ = study
    (lab / "outer/inner").mkdir(parents=True)
    (lab / "outer/inner/module.py").write_text("VALUE = 1\n")
    record["cells"]["one"]["set"] = ["network=outer.inner.module:net"]
    signature = sign_study(folder, record)
    assert is_own_study(folder, record, signature)
    (lab / "outer/inner/module.py").write_text("VALUE = 2\n")
    assert not is_own_study(folder, record, signature)


def test_a_module_that_is_a_link_is_signed_with_its_content(study, lab, tmp_path):
    (lab / "own_module.py").rename(tmp_path / "shared.py")
    (lab / "own_module.py").symlink_to("../shared.py")
    folder, record, _ = study
    signature = sign_study(folder, record)
    assert is_own_study(folder, record, signature)
    (tmp_path / "shared.py").write_text("VALUE = 2\n")
    assert not is_own_study(folder, record, signature)


@pytest.mark.parametrize(
    "value", ["\tlate:net", '"la\\u0074e:net"', "l·te:net", "late:2048-v0"]
)
def test_a_module_is_signed_however_a_setting_writes_it(study, lab, value):
    folder, record, _ = study
    record["cells"]["one"]["set"] = [f"network={value}"]
    module = lab / ("l·te.py" if "·" in value else "late.py")
    module.write_text("VALUE = 1\n")
    signature = sign_study(folder, record)
    module.write_text("VALUE = 2\n")
    assert not is_own_study(folder, record, signature)


def test_no_file_is_opened_that_a_record_of_others_names(study, monkeypatch):
    folder, record, signature = study
    monkeypatch.setattr(study_ownership, "read_recipe", None)
    for changed in ({**record, "cells": {}}, {**record, "more": {"digest": "0"}}):
        assert not is_own_study(folder, changed, signature)


def test_a_study_without_code_is_not_signed(study):
    folder, _, _ = study
    cell = {"recipe": "ppo_cartpole", "digest": "0", "set": ["train.seed=3"]}
    store = {"url": "s3://bucket/runs", "name": "a"}
    record = {"format": 1, "cells": {"one": cell}, "run_storage": store}
    assert sign_study(folder, record) is None


@pytest.mark.parametrize("has_trackers", [False, True])
@pytest.mark.parametrize("verb", ["moved", "copied", "linked"])
def test_a_study_that_is_elsewhere_is_the_users_own_without_trackers(
    study, lab, tmp_path, verb, has_trackers
):
    """As a run: its code is where and as it was, but trackers would tell of a copy."""
    folder, record, _ = study
    if has_trackers:
        (lab / "base.yaml").write_text(f"{BASE}train: {{trackers: [wandb]}}\n")
    signature = sign_study(folder, record)
    other = tmp_path / "runs/b"
    if verb == "moved":
        folder.rename(other)
    elif verb == "copied":
        shutil.copytree(folder, other)
    else:
        other.symlink_to(folder)
    assert is_own_study(other, record, signature) == (
        verb == "linked" or not has_trackers
    )
    (lab / "own_module.py").write_text("raise SystemExit(1)\n")
    assert not is_own_study(other, record, signature)


@pytest.mark.parametrize("place", ["", "own_module.py", "package", "package/part.py"])
def test_code_that_others_can_change_is_not_the_users_own(study, lab, place):
    (lab / place).chmod(0o777)
    assert not is_own_study(*study)
    assert sign_study(*study[:2]) is None


def test_a_study_of_another_user_is_not_the_users_own(study, monkeypatch):
    ownership.key_file().write_bytes(bytes(32))
    assert not is_own_study(*study)
    ownership.key_file().unlink()
    assert not is_own_study(*study)


def test_another_user_cannot_use_the_key(study, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not is_own_study(*study)


@pytest.mark.parametrize("signature", [None, "", "[]", "{}", '{"mac": 1}', 3])
def test_a_damaged_signature_is_none(study, signature):
    folder, record, _ = study
    assert not is_own_study(folder, record, signature)
