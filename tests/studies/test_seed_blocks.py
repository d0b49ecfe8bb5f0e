"""Studies with a test: blocks of seeds are added until all is decided."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tested_studies import (
    STUDY,
    WrittenTraining,
    score_noise,
    write_cell,
    write_files,
)
from tiers import quick_first

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.runs.study_record import find_study
from rlcli.studies.seed_blocks import add_block


@pytest.fixture(autouse=True)
def _files(folder):
    write_files(folder)


def verdicts(study="runs/studies/paper/n"):
    return {
        each["cell"]: (each["verdict"], each["seeds"])
        for each in rlcli.claim(study)["claims"]
    }


def train(monkeypatch, study="paper.yaml", score=score_noise, failing="", **keywords):
    trained = WrittenTraining(monkeypatch, score, failing=failing)
    rlcli.study(study, name="n", quiet=True, **keywords)
    return trained.trained


def test_seeds_are_added_until_each_cell_is_decided(monkeypatch):
    """`large` is decided first, and later blocks leave it out."""

    def score(recipe, environment, seed):  # of `small` the spread is large
        noise = score_noise(recipe, environment, seed)
        return noise + 70 * (-1) ** seed * (recipe == "small")

    trained = train(monkeypatch, score=score)
    found = verdicts()
    assert found["large"] == ("better", 15)
    assert found["small"][0] == "no difference"
    last = found["small"][1]
    assert last > 15
    assert [*dict.fromkeys(label.partition("/")[0] for label in trained)] == [
        f"seed={start}" for start in range(0, last, 5)
    ]
    assert {label for label in trained if label.endswith("large")} == {
        "seed=0/large",
        "seed=5/large",
        "seed=10/large",
    }
    cells = {cell.label: cell for cell in find_study("runs/studies/paper/n").cells}
    assert [*cells] == trained
    assert cells["seed=15/small"].sets[-2:] == ("train.seeds=5", "train.seed=15")
    before = Path("runs/studies/paper/n/study.json").read_bytes()
    assert add_block(Path("runs/studies/paper/n")) == []
    assert Path("runs/studies/paper/n/study.json").read_bytes() == before


@pytest.mark.slow
def test_without_a_decision_all_seeds_are_spent_and_no_more(monkeypatch):
    def score(recipe, environment, seed):
        return 300 + 200 * (-1) ** (seed // (2 if recipe == "large" else 1))

    trained = train(monkeypatch, score=score)
    assert len(trained) == 3 * 3 + 3 * 2
    assert verdicts()["large"] == ("undecided", 30)
    assert verdicts()["small"] == ("no difference", 15)  # the same results
    again = WrittenTraining(monkeypatch)
    rlcli.study("runs/studies/paper/n", quiet=True)
    assert again.trained == []


@pytest.mark.parametrize("stop_after", quick_first([0, 4, 6, 1, 3, 5, 8], quick=3))
def test_a_study_that_was_killed_ends_as_if_it_had_not_been(stop_after, monkeypatch):
    train(monkeypatch)
    whole = rlcli.claim("runs/studies/paper/n")
    record = Path("runs/studies/paper/n/study.json").read_bytes()
    trained = WrittenTraining(monkeypatch, stop_after=stop_after)
    with pytest.raises(KeyboardInterrupt):
        rlcli.study("paper.yaml", run="killed", quiet=True)
    if stop_after == 0:  # nothing has begun: no study is left
        assert not Path("killed").exists()
        return
    half = verdicts("killed")
    assert all(seeds <= 5 * -(-stop_after // 3) for _, seeds in half.values())
    trained.left = 10**9
    rlcli.study("killed", quiet=True)
    again = rlcli.claim("killed")
    assert again["claims"] == whole["claims"]
    assert len(trained.trained) == len({*trained.trained})  # none twice
    whole = record.replace(b'"name": "n"', b'"name": null')
    whole = whole.replace(b'/runs/studies/paper/n",', b'/killed",')
    assert Path("killed/study.json").read_bytes() == whole


def test_a_cell_that_fails_holds_back_its_own_seeds_only(monkeypatch, capsys):
    """`small` goes on without `large`, which catches up when it is trained again."""

    def score(recipe, environment, seed):  # of `small` the spread is large
        noise = score_noise(recipe, environment, seed)
        return noise + 70 * (-1) ** seed * (recipe == "small")

    failing = "seed=5/large"
    trained = train(monkeypatch, score=score, failing=failing)
    found = verdicts()
    assert found["large"] == ("undecided", 5)
    assert found["small"][0] == "no difference" and found["small"][1] > 10
    assert {label for label in trained if label.endswith("large")} == {
        "seed=0/large",
        failing,
    }
    assert main(["claim", "runs/studies/paper/n"]) == 0
    note = f"`{failing}` is failed, so no later seeds of `large` count"
    assert note in capsys.readouterr().err
    # Trained again, it fails once more, and nothing is added.
    folder = Path("runs/studies/paper/n")
    before = (folder / "study.json").read_bytes()
    again = WrittenTraining(monkeypatch, score, failing=failing)
    rlcli.study(folder, quiet=True)
    assert again.trained == [failing]
    assert (folder / "study.json").read_bytes() == before
    again = WrittenTraining(monkeypatch, score)
    rlcli.study(folder, quiet=True)
    assert again.trained == [failing, "seed=10/large"]
    assert verdicts()["large"] == ("better", 15)
    labels = [cell.label for cell in find_study(folder).cells]
    assert len(labels) == len({*labels})
    assert rlcli.claim(folder)["notes"] == []


def test_a_baseline_that_fails_ends_a_test(monkeypatch):
    trained = train(monkeypatch, failing="seed=5/pole")
    assert {label.partition("/")[0] for label in trained} == {"seed=0", "seed=5"}
    assert verdicts() == {"large": ("undecided", 5), "small": ("undecided", 5)}
    (note,) = rlcli.claim("runs/studies/paper/n")["notes"]
    assert "`seed=5/pole` is failed, so no later seeds of `pole` count" in note


@pytest.mark.slow
def test_a_killed_process_leaves_a_study_that_resume_completes(folder, start_study):
    command = [sys.executable, "-m", "rlcli", "study", "paper.yaml", "--quiet"]
    command += ["--jobs", "1"]
    process = start_study([*command, "--run", "killed"])
    deadline = time.monotonic() + 300
    while not Path("killed/seed=2").is_dir() and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for words in (["resume", "killed", "--quiet"], [*command[3:], "--run", "whole"]):
        subprocess.run([*command[:3], *words], check=True, capture_output=True)
    killed, whole = rlcli.claim("killed"), rlcli.claim("whole")
    assert killed["claims"] == whole["claims"]
    assert whole["claims"][0]["verdict"] != "undecided"


@pytest.fixture
def start_study(folder):
    """Starts a process of its own group, whose children die with it."""
    (folder / "lake.yaml").write_text(
        "environment: FrozenLakeNonSlippery-v0\n"
        "network: table\n"
        "updater: {name: q_learning, loss: mse}\n"
        "optimizer: {name: sgd, learning_rate: 0.5}\n"
        "train: {steps: 1_000, evaluate: {every: 500, episodes: 4}}\n"
    )
    (folder / "paper.yaml").write_text(
        "recipes: [lake.yaml]\n"
        "vary: {optimizer.learning_rate: [0.5, 0.01]}\n"
        "seeds: 2\n"
        "test: {baseline: lake learning_rate=0.5, effect: 0.3, max_seeds: 8}\n"
    )
    processes = []

    def start(command):
        process = subprocess.Popen(
            command, start_new_session=True, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def test_a_worker_and_a_smoke_run_add_no_block(monkeypatch):
    trained = WrittenTraining(monkeypatch)
    rlcli.study("paper.yaml", run="smoke", smoke=True, quiet=True)
    assert {label.partition("/")[0] for label in trained.trained} == {"seed=0"}
    with pytest.raises(KeyboardInterrupt):
        WrittenTraining(monkeypatch, stop_after=2)
        rlcli.study("paper.yaml", run="half", quiet=True)
    trained = WrittenTraining(monkeypatch)
    rlcli.study("half", cell=["seed=0/small"], quiet=True)
    assert trained.trained == ["seed=0/small"]


def test_an_array_of_slurm_has_one_block_after_the_other(capsys):
    """`study FOLDER --engine slurm` adds a block once the last one has ended."""
    options = ["--engine", "slurm", "--script", "array.sh", "--quiet", "--jobs", "1"]
    assert main(["study", "paper.yaml", "--run", "n", *options]) == 0
    folder, script = Path("n"), Path("array.sh")
    assert script.read_text().count("--cell") == 3
    assert "seed=0/large" in script.read_text()
    assert {c.label.partition("/")[0] for c in find_study(folder).cells} == {"seed=0"}
    for start in (5, 10, 15):
        for cell in find_study(folder).cells:
            if not cell.exists:
                write_cell(cell)
        capsys.readouterr()
        code = main(["study", "n", *options])
        if start < 15:
            assert code == 0
            assert script.read_text().count("--cell") == 3
            assert f"seed={start}/large" in script.read_text()
            assert "seed=0/" not in script.read_text()
    assert code == 1
    assert "there are no tasks" in capsys.readouterr().err
    assert verdicts("n") == {"large": ("better", 15), "small": ("no difference", 15)}


def test_an_array_goes_on_beside_a_cell_that_has_failed():
    options = ["--engine", "slurm", "--script", "array.sh", "--quiet"]
    assert main(["study", "paper.yaml", "--run", "n", *options]) == 0
    for cell in find_study("n").cells:
        failed = {"status": "failed"} if cell.label == "seed=0/large" else {}
        write_cell(cell, **failed)
    assert main(["study", "n", *options]) == 0
    script = Path("array.sh").read_text()
    assert script.count("--cell") == 3
    for label in ("seed=0/large", "seed=5/pole", "seed=5/small"):
        assert label in script


def also(text):
    """A change of the study: its test gets one key more."""
    return "max_seeds: 30", f"max_seeds: 30, {text}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("baseline: pole", "baseline: poel"), "paper.yaml:4: .* no cell `poel`"),
        (("effect: 50", "effect: 0"), r"paper.yaml:4.*`effect` .* float > 0, got `0`"),
        (("effect: 50", "effect: .nan"), "`effect` of the test: expected"),
        (("effect: 50", "effect: true"), "`effect` of the test: expected"),
        (("effect: 50", "effect: 1e300"), "`effect` of the test: expected"),
        (("effect: 50, ", ""), "the test needs `effect`"),
        (("max_seeds: 30", "max_seeds: 32"), "paper.yaml:4: .*32 seeds are not"),
        (("max_seeds: 30", "max_seeds: 5"), "5 seeds cannot decide anything"),
        (("max_seeds: 30", "max_seeds: 9999999"), "`max_seeds` of the test: expected"),
        (also("alpha: 0"), "`alpha` of the test: expected"),
        (also("alpha: 1.0"), "`alpha` of the test: expected"),
        (also("alpha: 1e-9"), "cannot decide anything"),
        (also("alpha: 1e-320"), "`alpha` of the test: expected"),
        (("seeds: 5", "seed: 2147483640\nseeds: 5"), "are larger than 2147483647"),
        (also("result: mean"), '`result` of the test: expected "last"'),
        (also("metric: 3"), "`metric` of the test: expected str"),
        (also("metrik: a"), "the test has no option `metrik`"),
        (also("reference: 3"), "`reference` of the test: expected"),
        (("test: {", "test: 3 # {"), "expected a test, got `?3"),
        (("seeds: 5\n", ""), "a study with a `test` needs `seeds`"),
        (("seeds: 5", "vary: {train.seed: [0]}\nseeds: 5"), "`train.seed` is varied"),
        (("pole.yaml, {name: large", "pole.yaml] #"), "the study has only `pole`"),
        (("seeds: 5", "environments: [CartPole-v1, probe-two-steps]\nseeds: 5"),
         "`probe-two-steps` has no reference scores"),
        (("seeds: 5", "environments: [CartPole-v1, {name: Acrobot-v1, recipe: "
          "ppo_cartpole}]\nseeds: 5"), "has none in `"),
    ],
)  # fmt: skip
def test_a_test_without_sense_is_refused_before_anything_begins(
    change, message, folder
):
    write_files(folder, STUDY.replace(*change))
    for call in (rlcli.study, rlcli.preview_study):
        with pytest.raises(RlcliError, match=message):
            call("paper.yaml")
    assert not Path("runs").exists()


def test_what_changes_results_cannot_change_in_a_test_that_has_begun(monkeypatch):
    train(monkeypatch)
    with pytest.raises(RlcliError, match=r"`train.steps` cannot change in a study"):
        rlcli.study("runs/studies/paper/n", set=["train.steps=800"])
    with pytest.raises(RlcliError, match=r"`train` cannot change in a study"):
        rlcli.study("runs/studies/paper/n", set=["train={steps: 800}"])
    with pytest.raises(RlcliError, match="of a sweep or a test"):
        rlcli.study(["pole.yaml"], run="runs/studies/paper/n")


@pytest.mark.slow
def test_a_preview_has_the_least_and_the_most_seeds_and_the_power(folder, capsys):
    write_files(folder, STUDY.replace(*also("std: 40")))
    found = rlcli.preview_study("paper.yaml")
    assert [each.seeds for each in found] == [5, 5, 5]
    plan = found[0].plan
    assert (plan["min_seeds"], plan["max_seeds"]) == (15, 30)
    assert plan["std"] == pytest.approx(40 * 2**0.5)
    assert 0.5 < plan["finds"] <= 1
    assert main(["study", "paper.yaml", "--dry-run"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "3 cells in 3 programs, 15 seeds in a block, at most 90 in all" in text
    assert "a claim takes 15 to 30 seeds of each cell" in text
    assert f"is found with a probability of {plan['finds']:.0%}" in text
    assert main(["study", "paper.yaml", "--dry-run", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["plan"]["max_seeds"] == 30
