"""The folder of runs with varied options: evaluated, shown and continued as one."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.runs.metrics import read_metrics
from rlcli.runs.run_folder import Run
from rlcli.runs.variants import Variants, find_variants

LAKE = """
environment: FrozenLakeNonSlippery-v0
network: table
updater: {name: q_learning, loss: mse}
optimizer: {name: sgd, learning_rate: 0.5}
train: {steps: 2_000, log: {every: 500}, evaluate: {every: 1_000, episodes: 4}}
"""
RATES = ["optimizer.learning_rate=0.1,0.5"]
GROUP = Path("runs/lake/rates")
SLOW, FAST = (GROUP / f"learning_rate={rate}" for rate in ("0.1", "0.5"))


@pytest.fixture(autouse=True)
def _files(folder):
    (folder / "lake.yaml").write_text(LAKE)


def train(vary=RATES, **keywords):
    return rlcli.train_all(
        ["lake.yaml"], vary=vary, name="rates", quiet=True, seeds=2, **keywords
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The runs of `RATES`, which `group` copies: to train them takes seconds."""
    with contextlib.chdir(tmp_path_factory.mktemp("trained")):
        Path("lake.yaml").write_text(LAKE)
        train()
        return Path("runs").absolute()


@pytest.fixture
def group(folder, trained):
    """The folder of a test with the runs of `RATES`."""
    shutil.copytree(trained, folder / "runs")
    return GROUP


def scores(path: Path) -> list[float]:
    return [seed["mean"] for seed in rlcli.eval(path, episodes=4)["seeds"]]


def test_the_folder_is_evaluated_shown_and_continued(group, capsys):
    result = rlcli.eval(GROUP, episodes=4)
    assert [each["options"] for each in result["variants"]] == [
        {"optimizer.learning_rate": "0.1"},
        {"optimizer.learning_rate": "0.5"},
    ]
    for path, each in zip((SLOW, FAST), result["variants"], strict=True):
        assert Path(each["run"]) == path.absolute()
        assert [seed["mean"] for seed in each["seeds"]] == scores(path)

    lines = rlcli.show(str(GROUP)).splitlines()
    assert " ".join(lines[0].split()) == "learning_rate seed 0 seed 1 IQM 95 % interval"
    assert [line.split()[0] for line in lines[1:3]] == ["0.1", "0.5"]
    capsys.readouterr()
    assert main(["show", str(GROUP), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["variants"]
    assert [Path(each["run"]) for each in shown] == [SLOW, FAST]
    assert {each["status"] for each in shown} == {"finished"}

    ended = rlcli.resume_all(GROUP, set=["train.steps=3_000"], quiet=True)
    assert [each.code for each in ended] == [0, 0]
    assert {read_metrics(path)[-1]["T"] for path in (SLOW, FAST)} == {3_000}
    before = [path.read_bytes() for path in sorted(GROUP.rglob("*")) if path.is_file()]
    assert [each.code for each in rlcli.resume_all(GROUP)] == [0, 0]
    after = [path.read_bytes() for path in sorted(GROUP.rglob("*")) if path.is_file()]
    assert before == after

    ended = rlcli.resume_all(GROUP, set=["train.steps=2_500"], quiet=True)
    assert [each.code for each in ended] == [1, 1]
    assert "has already made 3,000 steps" in ended[0].message


def test_a_single_run_of_the_folder_is_the_best_one(group, capsys):
    best = max((SLOW, FAST), key=lambda path: np.mean(last_returns(path)))
    capsys.readouterr()
    assert main(["render", str(GROUP), "--output", "x.gif"]) == 0
    message = capsys.readouterr().err
    assert message.startswith(f"using `{best}`, the best of 2 runs")
    assert variants().choose_best() == best
    with pytest.raises(RlcliError, match=r"has several runs"):
        rlcli.resume(GROUP)


def variants() -> Variants:
    found = find_variants(GROUP)
    assert found is not None
    return found


def last_returns(path: Path) -> list[float]:
    rows = [row for row in read_metrics(path) if "evaluation" in row]
    return [row["evaluation"]["mean"] for row in rows[-2:]]


def test_runs_of_a_second_command_are_added(group):
    vary = ["optimizer.learning_rate=0.2"]
    rlcli.train_all(["lake.yaml"], vary=vary, run=GROUP, quiet=True, seed=7)
    assert [*variants().values] == [
        *("learning_rate=0.1", "learning_rate=0.5", "learning_rate=0.2")
    ]
    table = rlcli.show(str(GROUP)).splitlines()
    assert [line.count("–") for line in table[1:4]] == [1, 1, 3]


def test_a_folder_is_a_run_or_has_variants(group):
    with pytest.raises(RlcliError, match=r"already contains runs with varied options"):
        rlcli.train("lake.yaml", run=GROUP, quiet=True)
    with pytest.raises(RlcliError, match=r"already contains a run"):
        rlcli.train_all(["lake.yaml"], vary=RATES, run=SLOW, quiet=True)


def test_the_best_run_has_a_policy_and_has_not_failed(folder):
    """A run whose seeds are all frozen keeps the return of its training."""
    train(["optimizer.learning_rate=1e38,1e-30"])
    failed, other = variants().runs
    assert json.loads((failed / "run.json").read_text())["status"] == "failed"
    assert variants().choose_best() == other
    assert main(["eval", str(GROUP), "--episodes", "4"]) == 0


def test_what_is_refused_leaves_no_folder(folder):
    with pytest.raises(RlcliError, match=r"is listed twice"):
        train(["tracer.gamma=0.9,0.9"])
    assert not Path("runs").exists()
    ended = train(["tracer.gamma=2,3"])
    assert [each.code for each in ended] == [1, 1]
    assert not GROUP.exists()


def test_a_removed_run_does_not_stop_the_others(folder, capsys):
    """It was trained together with one of them, which cannot continue alone."""
    train([*RATES, "updater.name=q_learning,sarsa"])
    shutil.rmtree(variants().runs[0])
    capsys.readouterr()
    assert main(["resume", str(GROUP), "--set", "train.steps=3_000"]) == 1
    errors = capsys.readouterr().err
    assert "was trained together with" in errors and "missing" in errors
    steps = [read_metrics(path)[-1]["T"] for path in variants().runs]
    assert sorted(steps) == [2_000, 3_000, 3_000]


def test_a_process_that_is_training_is_not_disturbed(group):
    with Run(FAST).lock():
        (refused, *_) = rlcli.resume_all(GROUP, set=["train.steps=3_000"], quiet=True)
    assert refused.code == 1 and "already training into" in refused.message


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"variants": 3}',
        '{"variants": {}}',
        '{"variants": {"..": []}}',
        '{"variants": {"a/b": []}}',
        '{"variants": {"a": 3}}',
        '{"variants": {"a": [3]}}',
    ],
)
def test_a_damaged_list_of_variants_is_one_clear_error(text):
    GROUP.mkdir(parents=True)
    (GROUP / "variants.json").write_text(text)
    with pytest.raises(RlcliError, match=r"variants\.json` is damaged"):
        rlcli.resume_all(GROUP)


@pytest.mark.slow
def test_an_interrupted_batch_continues_to_the_same_policies(folder):
    vary = [*RATES, "updater.name=q_learning,sarsa"]
    train(vary)
    shutil.move(GROUP, "undisturbed")
    command = [sys.executable, "-m", "rlcli", "train", "lake.yaml", "--name", "rates"]
    for text in vary:
        command += ["--vary", text]
    process = subprocess.Popen(
        [*command, "--jobs", "2", "--seeds", "2"], stderr=subprocess.DEVNULL
    )
    while len([*GROUP.glob("*/metrics.jsonl")]) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    ended = rlcli.resume_all(GROUP, quiet=True)
    assert {each.code for each in ended} == {0}
    for path in variants().runs:
        policy = Path("undisturbed", path.name, "policy.pkl.lz4")
        assert scores(path) == scores(policy)


@pytest.mark.slow
def test_a_refusal_of_every_process_is_reported(capsys):
    train([*RATES, "updater.name=q_learning,sarsa"])
    capsys.readouterr()
    assert main(["resume", str(GROUP), "--set", "train.steps=1_000"]) == 1
    assert capsys.readouterr().err.count("has already made 2,000 steps") == 4
