"""Job arrays: programs of a study as tasks, in a script that names every cell."""

import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time

import pytest
from sweeps import FakeEngine, drive, list_trials, make_sweep, skip_disk, train_cell
from tiers import quick_first

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.registry.user_code import module_command
from rlcli.runs.metrics import read_metrics
from rlcli.runs.run_folder import Run
from rlcli.studies.bsuite import suite
from rlcli.studies.engines import slurm
from rlcli.studies.engines.engine_options import EngineOptions

TASKS = [["a/lr=0.1", "a/lr=0.2"], ["b b"]]


def test_tasks_in_any_order_give_the_result_of_one_driver(monkeypatch, tmp_path):
    pytest.importorskip("optuna")
    skip_disk(monkeypatch)
    alone = make_sweep(tmp_path / "a")
    drive(alone, FakeEngine())
    tasks = make_sweep(tmp_path / "b", together=6)
    for number in (3, 0, 5, 1, 4):  # 2 has not begun
        train_cell(tasks, number)
    engine = FakeEngine()
    drive(tasks, engine)
    assert [key for key, _ in engine.started if key.startswith("trial")] == [
        "trials/0002"
    ]
    assert list_trials(tasks) == list_trials(alone)
    assert tasks.read_result() == alone.read_result()


def test_a_sweep_whose_trials_need_results_is_no_array(folder):
    pytest.importorskip("optuna")
    space = {"tracer.gamma": {"uniform": [0.9, 0.99]}}
    for sampler in (None, "pbt"):
        with pytest.raises(RlcliError, match="cannot have the sampler"):
            rlcli.sweep(
                "qlearning_frozenlake",
                space=space,
                sampler=sampler,
                engine="slurm",
                script="a.sh",
            )
    assert [*folder.iterdir()] == []
    sets = ["train.evaluate.every=300"]
    own = {"sampler": "random", "trials": 3, "set": sets, "engine": "slurm"}
    path = rlcli.sweep("qlearning_frozenlake", space=space, **own)
    text = (path / "slurm" / "array.sh").read_text()
    assert "--array=0-2\n" in text and "2) set -- --cell trials/0002 ;;" in text
    assert f'study --quiet --no-trust "$@" -- {path} &' in text
    with pytest.raises(RlcliError, match="option of `--engine slurm`, not of `local`"):
        rlcli.sweep(path, resume=True, script="a.sh")


def test_a_study_is_an_array_with_a_task_for_each_program(folder):
    vary = ["tracer.gamma=0.8,0.9", "updater.name=q_learning,sarsa"]
    ended = rlcli.study(
        ["qlearning_frozenlake"],
        vary=vary,
        run="s",
        engine="slurm",
        script="a.sh",
        max_time=10_800.0,
        **{"jobs": 3, "cpus": 4, "gpus": 2},
    )
    assert [(each.code, each.cell.exists) for each in ended] == [(0, False)] * 4
    text = (folder / "a.sh").read_text()
    tasks = re.findall(r"^    \d+\) set -- (.*) ;;$", text, re.MULTILINE)
    assert [words.split()[1::2] for words in tasks] == [
        [f"gamma={gamma},updater={name}" for gamma in ("0.8", "0.9")]
        for name in ("q_learning", "sarsa")
    ]
    assert "--max-time 10800s" in text
    assert "#SBATCH --array=0-1%3\n" in text
    assert "#SBATCH --cpus-per-task=4\n#SBATCH --gpus-per-task=2\n" in text
    assert {each.name for each in (folder / "s").iterdir()} == {"study.json", "slurm"}
    with pytest.raises(RlcliError, match="is not the name of a script"):
        rlcli.study("s", engine="slurm", script="a.txt")
    with pytest.raises(RlcliError, match="whole CPUs and GPUs"):
        rlcli.study("s", engine="slurm", gpus=0.5)


@pytest.mark.slow
def test_bsuite_is_an_array_whose_runs_are_scored_afterwards(
    folder, monkeypatch, capsys
):
    pytest.importorskip("matplotlib")
    words = ["bsuite", "dqn_catch", "catch/0", "deep_sea/3", "--run", "b"]
    assert main([*words, "--engine", "slurm", "--jobs", "1"]) == 0
    assert "next: sbatch --wait b/slurm/array.sh; rlcli resume b" in (
        capsys.readouterr().err
    )
    text = (folder / "b/slurm/array.sh").read_text()
    assert "--array=0-1%1\n" in text and "--cell runs/catch-0 ;;" in text
    calls = []

    def keep(cells, **_):
        calls.append(cells)
        return []

    monkeypatch.setattr(suite, "train_recorded", keep)
    assert main(["resume", "b"]) == 0
    assert [[cell.label for cell in cells] for cells in calls] == [
        ["runs/catch-0", "runs/deep_sea-3"]
    ]
    assert "no finished episode: catch/0, deep_sea/3" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["my study", "a$(touch x)", "50%", "c'\"d", "#e"])
def test_a_script_names_any_folder_and_cell_and_runs_nothing_of_it(tmp_path, name):
    (tmp_path / name).mkdir()
    script = tmp_path / "array.sh"
    engine = EngineOptions("slurm", script=script)
    slurm.write_script(tmp_path / name, [[name, "b"]], ["--no-trust"], engine)
    text = script.read_text()
    value = next(line for line in text.splitlines() if "--output=" in line)
    path = str(tmp_path / name / "slurm").replace("%", "%%")
    assert shlex.split(value)[1:] == [f"--output={path}/%a.log"]
    (job_name,) = (line for line in text.splitlines() if "--job-name" in line)
    assert re.fullmatch(r'#SBATCH --job-name="rlcli-[\w.+-]+"', job_name)
    command = next(line for line in text.splitlines() if line.endswith(" &"))
    words = shlex.split(command, comments=True)
    assert words[-2] == str(tmp_path / name) and "--no-trust" in words
    task = next(line for line in text.splitlines() if "0) set --" in line)
    assert shlex.split(task)[3:-1] == ["--cell", name, "--cell", "b"]


@pytest.mark.parametrize("name", ["a\ntouch x", "b\\c", "d\x1b"])
def test_a_folder_that_no_script_can_name_is_refused(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(RlcliError, match="a name that no SLURM script can contain"):
        engine = EngineOptions("slurm", script=tmp_path / "array.sh")
        slurm.write_script(tmp_path / name, TASKS, [], engine)
    assert not (tmp_path / "array.sh").exists()


@pytest.mark.parametrize(
    ("code", "restarts", "is_queued"),
    quick_first(
        [(0, 0, False), (75, 9, True), (143, 9, True), (137, 2, True), (137, 3, False)],
        quick=2,
    ),
)
def test_the_script_queues_a_task_again_that_saved_a_checkpoint_or_crashed(
    monkeypatch, tmp_path, code, restarts, is_queued
):
    """The program waits for TERM, which reaches the shell only."""
    tools = tmp_path / "tools"
    tools.mkdir()
    program = f"""#!/bin/sh
printf '%s\\n' "$@" > {tmp_path}/arguments
trap 'sleep 0.2; exit {code}' TERM
while true; do sleep 0.05; done
"""
    for name, text in {
        "python": program,
        "scontrol": f'#!/bin/sh\necho "$@" > {tmp_path}/queued\n',
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(stat.S_IRWXU)
    study, script = tmp_path / "my study", tmp_path / "a.sh"
    study.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(tools / "python"))
        engine = EngineOptions("slurm", script=script)
        slurm.write_script(study, TASKS, ["--no-trust"], engine, 10_800.0)
    assert "--array=0-1\n" in script.read_text()
    variables = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "17"}
    variables |= {"PATH": f"{tools}:{os.environ['PATH']}"}
    variables |= {"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}
    process = subprocess.Popen(["bash", script], env=variables)
    while not (tmp_path / "arguments").exists():
        time.sleep(0.02)
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == code
    _, *words = module_command("rlcli")
    expected = [*words, "study", "--quiet", "--no-trust", "--max-time", "10800s"]
    expected += ["--cell", "b b", "--", str(study)]
    assert (tmp_path / "arguments").read_text().splitlines() == expected
    queued = tmp_path / "queued"
    assert queued.exists() == is_queued
    if is_queued:
        assert queued.read_text() == "requeue 17_1\n"


LAKE = """
environment: FrozenLakeNonSlippery-v0
network: table
updater: {name: q_learning, loss: mse}
optimizer: {name: sgd, learning_rate: 0.5}
train: {steps: 2_000_000, log: {every: 20_000}, checkpoint: {every: 100_000}}
"""


@pytest.mark.slow
def test_tasks_that_are_stopped_and_queued_again_give_the_study_of_one_machine(folder):
    (folder / "lake.yaml").write_text(LAKE)
    queue = folder / "tools" / "scontrol"
    queue.parent.mkdir()
    queue.write_text(f'#!/bin/sh\necho "$@" >> {folder}/queued\n')
    queue.chmod(stat.S_IRWXU)
    vary = ["updater.name=q_learning,sarsa", "optimizer.learning_rate=0.1,0.5"]
    keywords = {"vary": vary, "seeds": 2, "quiet": True}
    rlcli.study(["lake.yaml"], run="alone", **keywords)
    rlcli.study(["lake.yaml"], run="array", engine="slurm", script="a.sh", **keywords)
    variables = {**os.environ, "PATH": f"{queue.parent}:{os.environ['PATH']}"}

    def start(task):
        own = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_JOB_ID": "1"}
        return subprocess.Popen(["bash", "a.sh"], env=variables | own)

    first = folder / "array/updater=q_learning,learning_rate=0.1"
    process = start(0)
    while not read_metrics(first):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert (folder / "queued").read_text() == "requeue 1_0\n"
    for task in (1, 0):
        assert start(task).wait(120) == 0
    ended = rlcli.study("array", quiet=True)
    assert [each.code for each in ended] == [0] * 4
    assert len(Run(first).read_info()["resumes"]) == 1
    for each in ended:
        ours = each.cell.folder / "policy.pkl.lz4"
        theirs = folder / "alone" / each.cell.label / "policy.pkl.lz4"
        assert ours.read_bytes() == theirs.read_bytes()
