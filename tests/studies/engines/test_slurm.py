"""Job arrays: trials as tasks, which together give the result of one driver."""

import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time

import pytest
from sweeps import FakeEngine, drive, list_trials, make_sweep, skip_disk

from rlcli.errors import RlcliError
from rlcli.registry.user_code import module_command
from rlcli.runs.run_folder import Run
from rlcli.studies.engines import slurm

pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch):
    skip_disk(monkeypatch)


def train(monkeypatch, sweep, number, **engine):
    made = FakeEngine(1, **engine)
    monkeypatch.setattr(slurm, "LocalEngine", lambda jobs: made)
    return slurm.train_trial(sweep.folder, number), made


@pytest.mark.parametrize("together", [1, 6])
@pytest.mark.parametrize("sampler", ["random", "grid"])
def test_tasks_in_any_order_give_the_result_of_one_driver(
    monkeypatch, tmp_path, sampler, together
):
    alone = make_sweep(tmp_path / "a", sampler=sampler)
    drive(alone, FakeEngine())
    tasks = make_sweep(tmp_path / "b", sampler=sampler, together=together)
    for number in (3, 0, 5, 1, 4):  # 2 has not begun
        status, _ = train(monkeypatch, tasks, number)
        assert status == "finished"
    engine = FakeEngine()
    drive(tasks, engine)
    assert [key for key, _ in engine.started if key.startswith("trial")] == ["trial 2"]
    assert list_trials(tasks) == list_trials(alone)
    assert tasks.read_result() == alone.read_result()


def test_a_task_that_was_stopped_resumes_and_one_that_has_ended_does_nothing(
    monkeypatch, tmp_path
):
    sweep = make_sweep(tmp_path / "s")
    made = FakeEngine(1)
    collect, calls = made.collect, []

    def stop_after_two():
        calls.append(None)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGTERM)
        return collect()

    made.collect = stop_after_two
    monkeypatch.setattr(slurm, "LocalEngine", lambda jobs: made)
    assert slurm.train_trial(sweep.folder, 0) == "terminated"
    assert Run(sweep.trial(0)).read_info()["status"] == "terminated"
    status, engine = train(monkeypatch, sweep, 0)
    assert status == "finished"
    assert len((sweep.trial(0) / "metrics.jsonl").read_text().splitlines()) == 6
    status, engine = train(monkeypatch, sweep, 0)
    assert (status, engine.started) == ("finished", [])


def test_a_task_stops_when_its_time_is_over(monkeypatch, tmp_path):
    sweep = make_sweep(tmp_path / "s")
    monkeypatch.setattr(slurm, "LocalEngine", lambda jobs: FakeEngine(1))
    assert slurm.train_trial(sweep.folder, 1, max_time=1e-9) == "out_of_time"


def test_a_trial_that_fails_is_an_error(monkeypatch, tmp_path):
    sweep = make_sweep(tmp_path / "s")
    with pytest.raises(RlcliError, match="trial 1 has failed: it does not work"):
        train(monkeypatch, sweep, 1, codes={"trial 1": [1]})
    with pytest.raises(RlcliError, match="has no trial 6: they are 0 to 5"):
        train(monkeypatch, sweep, 6)


def test_samplers_that_need_results_are_refused(tmp_path):
    sweep = make_sweep(tmp_path / "s", sampler="tpe")
    with pytest.raises(RlcliError, match="cannot have the sampler `tpe`"):
        slurm.write_script(sweep, sweep.read_settings(), tmp_path / "a.sh")
    with pytest.raises(RlcliError, match="is not the name of a script"):
        slurm.check_script(tmp_path / "a.txt")


@pytest.mark.parametrize("name", ["my sweep", "a$(touch x)", "50%", "c'\"d", "#e"])
def test_a_script_names_any_folder_and_runs_nothing_of_it(tmp_path, name):
    sweep = make_sweep(tmp_path / name)
    script = slurm.write_script(sweep, sweep.read_settings(), tmp_path / "array.sh")
    text = script.read_text()
    value = next(line for line in text.splitlines() if "--output=" in line)
    path = str(tmp_path / name / "slurm").replace("%", "%%")
    assert shlex.split(value)[1:] == [f"--output={path}/%a.log"]
    (job_name,) = (line for line in text.splitlines() if "--job-name" in line)
    assert re.fullmatch(r'#SBATCH --job-name="rlcli-[\w.+-]+"', job_name)
    command = next(line for line in text.splitlines() if line.endswith(" &"))
    words = shlex.split(command)
    assert words[words.index("sweep") + 1] == str(tmp_path / name)


@pytest.mark.parametrize("name", ["a\ntouch x", "b\\c", "d\x1b"])
def test_a_folder_that_no_script_can_name_is_refused(tmp_path, name):
    sweep = make_sweep(tmp_path / name)
    with pytest.raises(RlcliError, match="a name that no SLURM script can contain"):
        slurm.write_script(sweep, sweep.read_settings(), tmp_path / "array.sh")
    assert not (tmp_path / "array.sh").exists()


@pytest.mark.parametrize(("code", "is_queued"), [(0, False), (75, True), (143, True)])
def test_the_script_queues_a_task_again_that_saved_a_checkpoint(
    monkeypatch, tmp_path, code, is_queued
):
    """The program waits for TERM, which reaches the shell only."""
    tools = tmp_path / "tools"
    tools.mkdir()
    program = f"""#!/bin/sh
echo "$@" > {tmp_path}/arguments
trap 'sleep 0.2; exit {code}' TERM
while true; do sleep 0.05; done
"""
    for name, text in {
        "python": program,
        "scontrol": f'#!/bin/sh\necho "$@" > {tmp_path}/queued\n',
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(stat.S_IRWXU)
    sweep = make_sweep(tmp_path / "my sweep")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(tools / "python"))
        script = slurm.write_script(
            sweep, sweep.read_settings(), tmp_path / "a.sh", max_time="3h"
        )
    assert "--array=0-5\n" in script.read_text()
    path = f"{tools}:{os.environ['PATH']}"
    variables = {"SLURM_ARRAY_TASK_ID": "4", "SLURM_ARRAY_JOB_ID": "17", "PATH": path}
    process = subprocess.Popen(["bash", script], env=variables)
    while not (tmp_path / "arguments").exists():
        time.sleep(0.02)
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == code
    _, *words = module_command("rlcli")
    expected = (
        f"{' '.join(words)} sweep {sweep.folder} --resume --no-trust "
        "--max-time 10800s --trial 4"
    )
    assert (tmp_path / "arguments").read_text().split() == expected.split()
    queued = tmp_path / "queued"
    assert queued.exists() == is_queued
    if is_queued:
        assert queued.read_text() == "requeue 17_4\n"
