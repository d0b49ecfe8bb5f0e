"""W&B: what is in the file that `wandb sync` uploads."""

import struct

import pytest
from tracked import logged, record, tracked_run

from rlcli.errors import RlcliError
from rlcli.trackers.wandb import wandb

pytest.importorskip("wandb")
protocol = pytest.importorskip("wandb.proto.wandb_internal_pb2")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of W&B

BLOCK = 2**15  # bytes of a block of LevelDB's log format, which W&B uses


def log_records(data):
    """The records in LevelDB's log format after a header of seven bytes."""
    position, record = 7, b""
    while position < len(data):
        if BLOCK - position % BLOCK < 7:
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield record
            record = b""


def read_offline(folder):
    """The rows, the configuration and the ids of the runs in a folder."""
    rows, configuration, ids = [], {}, set()
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in log_records(file.read_bytes()):
            item = protocol.Record.FromString(data)
            if item.WhichOneof("record_type") == "history":
                pairs = [
                    (i.key or i.nested_key[0], i.value_json) for i in item.history.item
                ]
                rows.append(dict(pairs))
            elif item.WhichOneof("record_type") == "run":
                ids.add((item.run.run_id, item.run.display_name, item.run.run_group))
                for update in item.run.config.update:
                    configuration[update.key or update.nested_key[0]] = (
                        update.value_json
                    )
    return rows, configuration, ids


@pytest.mark.slow  # starts a process
def test_a_run_that_is_resumed_offline_has_each_step_once(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tracked_run(tmp_path / "run")
    logged(wandb(), run, [record(10, 2.5, histograms=["h"]), record(10, 2.0, seed=0)])
    logged(wandb(), run._replace(step=10), [record(20, 4.0)])
    rows, configuration, ids = read_offline(run.folder)
    assert ids == {("abc123", "dqn/first", "dqn")}
    assert "n_step" in configuration["tracer"]
    returns = [(row["_step"], row["train/return"]) for row in rows]
    assert returns == [("10", "2.5"), ("20", "4")] or returns == [
        ("10", "2.5"),
        ("20", "4.0"),
    ]
    assert rows[0]["seed_0/train/return"] in ("2", "2.0") and "h" in rows[0]


def test_logging_online_needs_an_api_key(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RlcliError, match="no API key") as caught:
        wandb()
    assert "WANDB_MODE=offline" in caught.value.hint
