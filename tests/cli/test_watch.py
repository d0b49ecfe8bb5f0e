"""`rlcli watch`: how it ends."""

import json
from pathlib import Path

import pytest

import rlcli
from rlcli.cli import main


@pytest.fixture
def ends(monkeypatch):
    """Puts a function in place of `rlcli.watch`, which returns a record."""

    def place(status, reason=""):
        record = {"status": status, "reason": reason, "run": "runs/x"}
        monkeypatch.setitem(vars(rlcli), "watch", lambda run: record | {"run": run})

    return place


@pytest.mark.parametrize(
    ("status", "verb"),
    [
        *(("finished", "eval"), ("stopped", "eval"), ("interrupted", "resume")),
        *(("killed", "resume"), ("out_of_time", "resume")),
    ],
)
def test_the_next_command_suits_the_end_of_the_run(ends, status, verb, capsys):
    ends(status, "a reason")
    assert main(["watch", "runs/my run"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"{status}: a reason\nnext: rlcli {verb} 'runs/my run'\n"


def test_the_file_of_a_run_does_not_decide_whom_to_trust(ends, tmp_path, capsys):
    (tmp_path / "run.json").write_text('{"imports": ["my_env:MyEnv"]}')
    ends("finished")
    assert main(["watch", str(tmp_path)]) == 0
    assert capsys.readouterr().err.endswith(f"rlcli eval {tmp_path}\n")


def test_nothing_is_to_be_done_for_a_run_that_has_failed(ends, capsys):
    ends("failed", "a reason")
    assert main(["watch", "runs/x"]) == 0
    assert capsys.readouterr().err == "failed: a reason\n"


def test_the_record_is_printed_as_json(ends, capsys):
    ends("finished")
    assert main(["watch", "runs/x", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"status": "finished", "reason": "", "run": "runs/x"}
    assert err == "finished\nnext: rlcli eval runs/x\n"


def test_ctrl_c_leaves_the_run_alone(monkeypatch, capsys):
    def interrupt(run):
        assert run == Path("runs/x")
        raise KeyboardInterrupt

    monkeypatch.setitem(vars(rlcli), "watch", interrupt)
    assert main(["watch", "runs/x"]) == 0
    assert capsys.readouterr() == ("", "the run continues\n")
