"""Records of hooks: lines of a file that a process may have left unfinished."""

import pytest
from wording import mentions

from rlcli.errors import RlcliError
from rlcli.runs.hook_records import HookRecord, append_hook_record, read_hook_records
from rlcli.runs.run_folder import Run


def test_a_line_ends_where_it_was_ended(tmp_path):
    # JSON may contain what Python takes for the end of a line.
    records = [
        HookRecord(1, {"environment.a\u2028b": 2.0}, {}),
        HookRecord(2, {}, {"x": 1.0}),
    ]
    for record in records:
        append_hook_record(Run(tmp_path), record)
    assert read_hook_records(Run(tmp_path)) == records


def test_a_record_of_which_a_killed_process_wrote_half_is_none(tmp_path):
    append_hook_record(Run(tmp_path), record := HookRecord(1, {}, {"x": 1.0}))
    with Run(tmp_path).hook_records.open("a") as file:
        file.write('{"T": 2, "set"')
    assert read_hook_records(Run(tmp_path)) == [record]


@pytest.mark.parametrize(
    "line",
    [
        '{"T": 2, "set"',
        '{"T": 2, "set": {"a": 1e400}, "log": {}}',
        '{"T": 2, "set": {"a": 1e39}, "log": {}}',
    ],
)
def test_a_damaged_record_is_named_by_its_line(tmp_path, line):
    append_hook_record(Run(tmp_path), HookRecord(1, {}, {"x": 1.0}))
    with Run(tmp_path).hook_records.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(RlcliError) as error:
        read_hook_records(Run(tmp_path))
    assert mentions(
        error.value.message, "hooks.jsonl` is damaged: line 2 is not a record"
    )
