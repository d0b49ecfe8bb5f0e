"""Processes: which one this is, from options or from a launcher's variables."""

import pytest

from rlcli.errors import RlcliError
from rlcli.xla import processes
from rlcli.xla.processes import ProcessGroup, parse_group


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)


def test_the_options_name_the_process():
    assert parse_group(None, None) == ProcessGroup("", 0, 1)
    assert parse_group("node0:9000", "3/4") == ProcessGroup("node0:9000", 3, 4)
    assert parse_group("node0:9000", "0/4").is_first


@pytest.mark.parametrize(
    ("variables", "group"),
    [
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, ProcessGroup("", 1, 2)),
        (
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"},
            ProcessGroup("", 0, 4),
        ),
        (
            {
                **{"RANK": "2", "WORLD_SIZE": "8"},
                **{"MASTER_ADDR": "node0", "MASTER_PORT": "9000"},
            },
            ProcessGroup("node0:9000", 2, 8),
        ),
    ],
)
def test_the_variables_of_a_launcher_name_the_process(monkeypatch, variables, group):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert parse_group("auto", None) == group


@pytest.mark.parametrize(
    ("coordinator", "process", "message"),
    [
        ("node0:9000", None, "`--coordinator` requires `--process`"),
        (None, "0/2", "`--process` requires `--coordinator`"),
        ("node0:9000", "2/2", "`--process 2/2` is invalid: expected I/N"),
        ("node0:9000", "one", "`--process one` is invalid: expected I/N"),
        ("node0", "0/2", "`--coordinator node0` is invalid: expected HOST:PORT"),
        ("auto", None, "needs the variables of a launcher"),
    ],
)
def test_incomplete_options_are_refused(coordinator, process, message):
    with pytest.raises(RlcliError, match=message) as error:
        parse_group(coordinator, process)
    assert "--process 0/2" in error.value.hint


def test_a_single_process_agrees_with_itself():
    assert processes.count() == 1 and processes.is_first()
    assert processes.of_first(7) == 7
    assert processes.any_process(True) and not processes.any_process(False)
    assert processes.agree("finished", ["", "finished"]) == "finished"
