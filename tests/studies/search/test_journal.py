"""The journal of a sweep as a storage backend of Optuna."""

import json
import os

import pytest

from rlcli.errors import RlcliError
from rlcli.studies.search.journal import Journal

optuna = pytest.importorskip("optuna")
STUDY = {"op_code": 0, "worker_id": "a", "study_name": "s", "directions": [1]}
TRIAL = {"op_code": 4, "worker_id": "a", "study_id": 0, "datetime_start": None}


def storage(path, **keywords):
    return optuna.storages.JournalStorage(Journal(path, **keywords))


def make_study(path):
    study = optuna.create_study(storage=storage(path), study_name="s")
    study.enqueue_trial({"x": 0.25})
    trial = study.ask()
    trial.suggest_float("x", 0, 1)
    trial.set_user_attr("seeds", [1.0, float("inf")])
    trial.report(float("-inf"), 3)
    study.tell(trial, 2.5)
    return study


def test_optuna_reads_what_it_writes_and_so_does_a_reader(tmp_path):
    path = tmp_path / "journal.log"
    study = make_study(path)
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    for each in (
        storage(path),
        storage(path, is_reader=True),
        optuna.storages.JournalStorage(backend),
    ):
        (found,) = optuna.load_study(study_name="s", storage=each).get_trials()
        (expected,) = study.get_trials()
        assert found == expected
        assert (found.params, found.value) == ({"x": 0.25}, 2.5)
        assert found.intermediate_values == {3: float("-inf")}


def test_what_another_process_appends_is_read(tmp_path):
    path = tmp_path / "journal.log"
    study = optuna.create_study(storage=storage(path), study_name="s")
    other = optuna.load_study(study_name="s", storage=storage(path))
    numbers = [each.ask().number for each in (study, other, study, other)]
    assert numbers == [0, 1, 2, 3]
    assert len(study.get_trials()) == 4


def test_a_reader_writes_nothing_and_sees_its_own_changes(tmp_path):
    path = tmp_path / "journal.log"
    make_study(path)
    content = path.read_bytes()
    own = storage(path, is_reader=True)
    study = optuna.load_study(study_name="s", storage=own)
    trial = study.ask()
    study.tell(trial, 1.0)
    assert [each.value for each in study.get_trials()] == [2.5, 1.0]
    assert path.read_bytes() == content
    with pytest.raises(RlcliError, match="is missing: it stores the trials"):
        Journal(tmp_path / "none.log", is_reader=True)


def test_half_a_line_is_skipped_by_a_reader_and_removed_by_a_writer(tmp_path):
    path = tmp_path / "journal.log"
    make_study(path)
    content = path.read_bytes()
    path.write_bytes(content + b'{"op_code": 4')
    study = optuna.load_study(study_name="s", storage=storage(path, is_reader=True))
    assert len(study.get_trials()) == 1
    assert path.read_bytes() == content + b'{"op_code": 4'
    Journal(path)
    assert path.read_bytes() == content
    path.write_bytes(b"half")
    Journal(path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"?", "Expecting value"),
        (b"", "Expecting value"),
        (b"\xff", "invalid start byte"),
        (b"[" * 100_000, "recursion"),
        (b"[]", "it is not a JSON object"),
        (b"{}", "there is no operation `null`"),
        ({**STUDY, "op_code": 99}, "there is no operation `99`"),
        ({**STUDY, "op_code": [0]}, r"there is no operation `\[0\]`"),
        ({**STUDY, "study_name": 3}, "`study_name` is `3`"),
        ({**STUDY, "worker_id": None}, "`worker_id` is `null`"),
        ({**STUDY, "directions": [9]}, "ValueError: 9 is not a valid"),
        ({**TRIAL, "state": 77}, "77 is not a valid TrialState"),
        ({**TRIAL, "params": {"x": 1.0}}, "KeyError"),
        ({**TRIAL, "distributions": {"x": "{}"}}, "KeyError|ValueError"),
        ({**TRIAL, "datetime_start": "yesterday"}, "ValueError"),
        ({"op_code": 6, "worker_id": "a", "trial_id": "0"}, '`trial_id` is `"0"`'),
        ({"op_code": 9, "worker_id": "a", "trial_id": 0}, "`system_attr` is `null`"),
    ],
)
def test_a_damaged_line_is_named(line, reason, tmp_path):
    from sweeps import settings

    from rlcli.studies.search.layout import Sweep
    from rlcli.studies.search.space import load_space
    from rlcli.studies.search.trials import Trials

    path = tmp_path / "journal.log"
    data = line if isinstance(line, bytes) else json.dumps(line).encode()
    path.write_bytes(json.dumps(STUDY).encode() + b"\n" + data + b"\n")
    space, chosen = load_space({"x": {"uniform": [0, 1]}}), settings(study="s")
    for is_reader in (True, False):
        with pytest.raises(RlcliError, match=reason) as caught:
            found = Sweep(tmp_path, settings=chosen, space=space)
            Trials(found, is_reader=is_reader)
        start = f"`{path}` is damaged: line 2: "
        assert caught.value.message.startswith(start)
        assert len(caught.value.message) < len(start) + 300


def test_a_file_of_zeros_needs_no_memory(tmp_path):
    path = tmp_path / "journal.log"
    with path.open("wb") as file:
        file.truncate(2**40)
    for is_reader in (True, False):
        with pytest.raises(RlcliError, match="line 1 has more than 1,048,576 bytes"):
            storage(path, is_reader=is_reader)
    assert os.stat(path).st_size == 2**40
