"""Fuzzing: random input is a success or one clear error; `make fuzz` tries more."""

import collections
import contextlib
import importlib
import os
import pickle
import re
import socket
import subprocess
import sys
from pathlib import Path

import fuzz_inputs
import fuzz_targets
import pytest
from fuzz_guard import FoundError, Guard
from tiers import quick_first

import rlcli

CASES = 125  # in a test
SECURITY = Path(__file__).parents[2] / "SECURITY.md"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return fuzz_targets.Place(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def guard(place):
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("CACHE", "CONFIG", "DATA"):
            patch.setenv(f"XDG_{kind}_HOME", str(place.folder / kind.lower()))
        yield Guard(place.folder)


@pytest.mark.parametrize("seed", quick_first([0, CASES]))
def test_random_input_is_a_success_or_one_clear_error(place, guard, seed):
    outcomes = collections.Counter()
    with guard.limits():
        for index, (kind, draw) in enumerate(fuzz_targets.cases(seed, CASES), seed):
            target = fuzz_targets.TARGETS[kind]
            case = target.make(draw, place)
            try:
                outcomes[guard.run(case, is_data=target.is_data)] += 1
            except AssertionError as error:
                raise AssertionError(f"case {index}, {kind}: {error}") from error
    assert outcomes[True] > 7 and outcomes[False] > 15


@pytest.mark.parametrize("name", sorted(fuzz_targets.bad_parts()))
def test_a_part_that_cannot_be_used_is_one_clear_error(name, guard):
    case = fuzz_targets.use_part("updater", f"fuzz_parts:{name}", {})
    assert guard.run(case, is_data=False) is False


def test_a_case_depends_on_its_number_only():
    first, second = (
        [(kind, draw.random()) for kind, draw in fuzz_targets.cases(5, 4)],
        [(kind, draw.random()) for kind, draw in fuzz_targets.cases(7, 2)],
    )
    assert first[2:] == second


def test_every_command_says_what_it_reads():
    assert fuzz_inputs.COMMAND_INPUTS.keys() == rlcli.COMMANDS.keys()
    kinds = {kind for row in fuzz_inputs.COMMAND_INPUTS.values() for kind in row}
    assert kinds == fuzz_inputs.KINDS.keys()


def test_every_kind_of_input_is_fuzzed_and_has_a_row_of_the_threat_model():
    targets = {name for names in fuzz_inputs.KINDS.values() for name in names}
    assert targets == fuzz_targets.TARGETS.keys()
    table = SECURITY.read_text().partition("## Threat model")[2].partition("\n## ")[0]
    inputs = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    for kind in fuzz_inputs.KINDS:
        assert any(kind in each for each in inputs), kind


def _write(path):
    path.write_text("x")


def _import(folder):
    (folder / "fuzz_module.py").write_text("")
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        importlib.import_module("fuzz_module")
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("fuzz_module", None)


ATTACKS = {
    "a file elsewhere": lambda folder: _write(folder.parent / "elsewhere"),
    "a file behind a link": lambda folder: _write(folder / "link"),
    "a file removed elsewhere": lambda folder: os.remove(folder.parent / "elsewhere"),
    "a file renamed": lambda folder: os.rename(folder / "a", folder.parent / "b"),
    "a folder elsewhere": lambda folder: (folder.parent / "new").mkdir(),
    "a process": lambda folder: subprocess.run(["true"], check=True),
    "a connection": lambda folder: socket.create_connection(("127.0.0.1", 9), 0.1),
    "a look-up": lambda folder: socket.getaddrinfo("localhost", 80),
    "a class": lambda folder: pickle.loads(pickle.dumps(collections.Counter)),
    "a module": _import,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_guard_sees(name, guard, place):
    (place.folder / "a").write_text("a")
    (place.folder.parent / "elsewhere").write_text("a")
    link = place.folder / "link"
    if not link.is_symlink():
        link.symlink_to(place.folder.parent / "elsewhere")

    def attack():
        with contextlib.suppress(OSError):  # nobody listens
            ATTACKS[name](place.folder)

    seen = "outside of the folder|data caused|data imported"
    with pytest.raises(FoundError, match=seen):
        guard.run(attack, is_data=True)
