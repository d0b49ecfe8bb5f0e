"""The profiler: how the time of an iteration is divided, and that nothing changes."""

import gzip
import json

import pytest
from folders import read_rows

import rlcli
from rlcli.loop import phases
from rlcli.training.experiment import profile

HLO = """HloModule jit_f, is_scheduled=true
  %dot.3 = f32[2]{0} dot(%a, %b), metadata={op_name="jit(f)/while/rlcli:update/dot"}
  ROOT %fusion = f32[] fusion(%c), metadata={op_name="jit(f)/rlcli:act/noise/add"}
  %nested.1 = f32[] add(%d), metadata={op_name="f/rlcli:update/vmap(rlcli:trace)/add"}
  %copy.2 = f32[] copy(%f), metadata={op_name="jit(update)/while"}
  %bare = f32[] copy(%f)
"""


def event(name, start, duration, thread=1, **arguments):
    if "hlo_op" in arguments:
        arguments = {"hlo_module": "jit_f", **arguments}
    times = {"ts": start, "dur": duration, "pid": 1, "tid": thread}
    return {"ph": "X", "name": name, "args": arguments, **times}


def test_the_phase_of_an_operation_is_its_innermost_scope():
    assert profile.module_name(HLO) == "jit_f"
    assert profile.phases_of_operations(HLO) == {
        "dot.3": phases.UPDATE,
        "fusion": phases.ACT,
        "nested.1": phases.TRACE,
        "copy.2": profile.OTHER,
    }


def test_inner_operations_are_subtracted_from_outer_ones():
    phase_of = {"while": profile.OTHER, "dot": phases.UPDATE, "add": phases.ACT}
    events = [
        event("while", 0, 100, hlo_op="while"),
        event("dot", 10, 40, hlo_op="dot"),
        event("add", 20, 5, hlo_op="add"),
        event("add", 60, 10, hlo_op="add"),
        event("dot", 0, 7, thread=2, hlo_op="dot"),
        event("copy", 0, 9, thread=3, hlo_op="without.a.name"),
        event("dot", 0, 1_000, thread=4, hlo_op="dot", hlo_module="jit_g"),
        event("environment", 200, 3, long_name=phases.ENVIRONMENT),
        event("environment", 300, 1_000),
        event("python", 0, 1_000),
        {"ph": "M", "name": "process_name"},
    ]
    assert profile.divide_time(events, "jit_f", phase_of) == {
        profile.OTHER: 100 - 40 - 10 + 9,
        phases.UPDATE: 40 - 5 + 7,
        phases.ACT: 5 + 10,
        phases.ENVIRONMENT: 3,
    }


RECIPE = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": {"name": "mlp", "layers": [8]},
    "replay": {"name": "uniform", "capacity": 500, "batch_size": 8},
    "updater": "q_learning",
    "train": {"steps": 60_000, "start": 50, "log": {"every": 5_000}},
}


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["CartPole-v1", "gymnasium/CartPole-v1"])
def test_a_profiled_run_divides_its_time_and_trains_as_any_other(tmp_path, environment):
    data = {**RECIPE, "environment": {"name": environment, "num_envs": 2}}
    plain = rlcli.train(data, run=tmp_path / "plain", quiet=True)
    run = rlcli.train(data, run=tmp_path / "run", quiet=True, profile=True)
    table = (run / "profile" / "table.txt").read_text()
    shares = {
        line.split()[0]: float(line.split()[1].rstrip("%"))
        for line in table.splitlines()
        if "%" in line
    }
    assert sum(shares.values()) == pytest.approx(100, abs=1)
    expected = {"environment", "act", "store", "sample", "update", "host"}
    assert expected <= set(shares)
    assert shares["update"] > 0
    path = table.splitlines()[-1].partition(": ")[2]
    with gzip.open(path) as file:
        assert json.load(file)["traceEvents"]
    assert read_rows(run) == read_rows(plain)


@pytest.mark.slow
def test_a_run_that_ends_early_says_so(tmp_path):
    data = {**RECIPE, "train": {"steps": 60, "start": 50}}
    run = rlcli.train(data, run=tmp_path / "run", quiet=True, profile=True)
    assert not (run / "profile").exists()
    assert "no profile: the run ended" in (run / "log.txt").read_text()


@pytest.mark.slow
def test_a_profile_is_not_written_through_a_link(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "run" / "profile").symlink_to(tmp_path / "victim")
    run = rlcli.train(RECIPE, run=tmp_path / "run", quiet=True, profile=True)
    assert [*(tmp_path / "victim").iterdir()] == []
    log = (run / "log.txt").read_text()
    assert "no profile: " in log and "File exists" in log
