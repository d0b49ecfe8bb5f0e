"""What the test of a study has shown, from its folder alone."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from folders import imports_jax
from scipy import stats
from tested_studies import STUDY, WrittenTraining, score_noise, write_cell, write_files
from tiers import quick_first

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.results.claim_test import ClaimTest, check_test, name_groups
from rlcli.results.groups import find_members, group_members
from rlcli.runs.study_record import Cell, find_study


@pytest.fixture
def trained(folder, monkeypatch):
    """Trains a study with written results, and returns its claims by cell."""

    def train(study=STUDY, score=score_noise):
        write_files(folder, study)
        WrittenTraining(monkeypatch, score)
        rlcli.study("paper.yaml", run="study", quiet=True)
        return claims()

    return train


def claims(**keywords):
    found = rlcli.claim("study", **keywords)
    return {each["cell"]: each for each in found["claims"]}


def test_a_claim_has_the_differences_of_the_seeds_of_the_file(trained):
    found = trained()["large"]
    pairs = [
        score_noise("large", "", seed) - score_noise("pole", "", seed)
        for seed in range(found["seeds"])
    ]
    assert found["seeds"] == 15
    assert found["difference"] == pytest.approx(np.mean(pairs))
    # The permutation interval is near Student's at the share of α spent by then.
    level = 2 * (2 - 2 * stats.norm.cdf(stats.norm.ppf(1 - 0.0125 / 2) * 2**0.5))
    low, high = stats.t.interval(1 - level, 14, np.mean(pairs), stats.sem(pairs))
    width = high - low
    assert found["low"] == pytest.approx(low, abs=0.35 * width)
    assert found["high"] == pytest.approx(high, abs=0.35 * width)
    assert found["sentence"] == (
        f"`large` is better than `pole`: the mean difference in return is "
        f"{found['difference']:.3g} (95 % interval {found['low']:.3g} to "
        f"{found['high']:.3g}), after 15 of at most 30 seeds"
    )


def test_the_verdicts_are_better_worse_equal_and_undecided(trained):
    def score(recipe, environment, seed):
        noise = score_noise(recipe, environment, seed)
        return noise - (90 if recipe == "large" else 0)

    found = trained(score=score)
    assert found["large"]["verdict"] == "worse"
    assert found["large"]["high"] < 0
    assert found["small"]["verdict"] == "no difference"
    assert (
        "`small` and `pole` differ by no more than 50: " in found["small"]["sentence"]
    )


def test_of_a_loss_the_lower_one_is_better(trained):
    study = STUDY.replace("max_seeds: 30", "max_seeds: 30, metric: loss")

    def write_losses(cell):
        path = cell.folder / "metrics.jsonl"
        path.write_text(path.read_text().replace("avg_G", "loss"))

    with pytest.raises(RlcliError, match="no run has the metric `loss`"):
        trained(study)
    for start in (0, 5, 10):
        del start
        for cell in find_study("study").cells:
            write_losses(cell)
        try:
            rlcli.study("study", quiet=True)
        except RlcliError:
            continue
    for cell in find_study("study").cells:
        write_losses(cell)
    found = claims()["large"]
    assert found["verdict"] == "worse"  # higher by 60
    assert found["difference"] > 0
    assert found["low"] < found["difference"] < found["high"]
    assert f"in `loss` is {found['difference']:.3g} (95 %" in found["sentence"]


def test_options_that_are_called_alike_are_different_cells():
    study = Path("study")
    keys = "policy.rate", "updater.rate"
    cells = [Cell(study / key, study, "pole", "", values={key: "1"}) for key in keys]
    assert name_groups(cells) == ["pole policy.rate=1", "pole updater.rate=1"]
    test = ClaimTest("pole rate=1", effect=1.0, max_seeds=30, seeds=5)
    with pytest.raises(RlcliError, match="no cell `pole rate=1` as a baseline"):
        check_test(test, cells)
    check_test(test._replace(baseline="pole policy.rate=1"), cells)


def test_environments_are_normalized_strata(trained):
    """In one `large` is better, in the other worse by the same normalized score."""
    study = STUDY.replace(
        "seeds: 5", "environments: [CartPole-v1, Acrobot-v1]\nseeds: 5"
    )
    study = study.replace("effect: 50", "effect: 0.2, reference: ['CartPole-v1=0,100']")

    def score(recipe, environment, seed):
        noise = (seed * 7 + len(recipe)) % 5 / 100  # normalized
        shift = {"large": 0.5, "small": 0.0, "pole": 0.0}[recipe]
        if environment == "CartPole-v1":
            return 100 * (noise + shift)
        return -498.5 + (-100 + 498.5) * (noise - shift)

    found = trained(study, score)
    for name in ("large", "small"):
        assert found[name]["verdict"] == "no difference"
        assert abs(found[name]["difference"]) < 0.05
        assert "mean difference in normalized return" in found[name]["sentence"]


def test_environments_of_one_name_are_told_apart(trained):
    two = "environments: [CartPole-v1, {name: CartPole-v1, length: 1.5}]\nseeds: 5"
    study = STUDY.replace("seeds: 5", two)
    study = study.replace("effect: 50", "effect: 0.2, reference: ['0,500']")
    seen = []

    def score(recipe, environment, seed):
        seen.append(environment)
        return score_noise(recipe, environment, seed)

    assert trained(study, score)["large"]["seeds"] >= 10
    assert {*seen} == {"CartPole-v1", "CartPole-v1,length=1.5"}


def test_blocks_of_a_cell_are_one_group_everywhere(trained):
    trained()
    groups = group_members(find_members("study", []))
    assert {group.label: len(group.members) for group in groups} == {
        "pole": 3,
        "large": 3,
        "small": 3,
    }


def test_a_block_counts_when_it_has_finished_with_all_its_seeds(trained):
    trained()
    info = Path("study/seed=5/large/run.json")
    whole = json.loads(info.read_text())
    info.write_text(json.dumps(whole | {"status": "running"}))
    assert claims()["large"]["seeds"] == 5
    assert "too few seeds for a 95 % interval" in claims()["large"]["sentence"]
    assert claims()["small"]["seeds"] == 15
    info.write_text(json.dumps(whole))
    cell = next(c for c in find_study("study").cells if c.label == "seed=5/large")
    for file in (*cell.folder.iterdir(), cell.folder):
        file.unlink() if file.is_file() else file.rmdir()

    def score(recipe, environment, seed):
        return None if seed == 7 else score_noise(recipe, environment, seed)

    write_cell(cell, score)
    assert claims()["large"]["seeds"] == 5
    notes = rlcli.claim("study")["notes"]
    assert any("seed 7 of `large` in CartPole-v1 has no result" in n for n in notes)


def test_without_results_nothing_is_claimed(folder, monkeypatch):
    write_files(folder)
    WrittenTraining(monkeypatch, stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        rlcli.study("paper.yaml", run="study", quiet=True)
    found = claims()["large"]
    assert (found["verdict"], found["seeds"]) == ("undecided", 0)
    assert found["low"] is found["high"] is found["difference"] is None
    assert found["sentence"].endswith(": no block of seeds has finished")
    assert main(["claim", "study", "--json"]) == 0


def test_only_the_folder_of_a_study_with_a_test_has_claims(folder):
    with pytest.raises(RlcliError, match="is not the folder of a study with a `test`"):
        rlcli.claim(folder)
    assert main(["claim", "nowhere"]) == 1


@pytest.mark.parametrize(
    "test",
    quick_first(
        [
            3,
            {},
            {"baseline": "a", "effect": 1, "max_seeds": 10**9, "seeds": 1, "seed": 0},
            {"baseline": "a", "effect": 1, "max_seeds": 10, "seeds": 0, "seed": 0},
            {"baseline": "a", "effect": 1, "max_seeds": 10, "seeds": 3, "seed": 0},
            {"baseline": "a", "effect": -1, "max_seeds": 10, "seeds": 5, "seed": 0},
            {"baseline": "a", "effect": 1, "max_seeds": 10, "seeds": 5, "seed": -1},
            {
                "baseline": "a",
                "effect": 1,
                "max_seeds": 10,
                "seeds": 5,
                "seed": 0,
                "x": 1,
            },
        ],
        quick=4,
    ),
)
def test_a_record_from_elsewhere_is_refused_if_its_test_is_damaged(test, trained):
    trained()
    path = Path("study/study.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"test": test}))
    with pytest.raises(RlcliError, match=r"the test in `study` is damaged: "):
        rlcli.claim("study")


def test_a_test_without_its_baseline_is_damaged(trained):
    trained()
    path = Path("study/study.json")
    record = json.loads(path.read_text())
    record["test"]["baseline"] = "nobody"
    path.write_text(json.dumps(record))
    with pytest.raises(RlcliError, match="damaged: it has no cell `nobody`"):
        rlcli.claim("study")


@pytest.mark.parametrize("lost", [("pole",), ("small",), ("pole", "small")])
def test_cells_without_a_result_have_no_claim_and_no_next_block(lost, trained, capsys):
    def score(recipe, environment, seed):
        noise = score_noise(recipe, environment, seed)
        return math.nan if recipe in lost else noise

    found = trained(score=score)["small"]
    assert found["verdict"] == "undecided" and found["seeds"] == 0
    assert not found["is_open"]
    notes = rlcli.claim("study")["notes"]
    assert all(any(f"`{name}`" in note for note in notes) for name in lost)
    assert rlcli.report("study", episodes=0, output="page.html").exists()
    if "pole" in lost:
        assert main(["claim", "study"]) == 0
        assert "next:" not in capsys.readouterr().err


def test_a_smoke_study_has_no_next_block(folder, monkeypatch, capsys):
    write_files(folder, STUDY)
    WrittenTraining(monkeypatch)
    rlcli.study("paper.yaml", run="study", smoke=True, quiet=True)
    assert main(["claim", "study"]) == 0
    assert "next:" not in capsys.readouterr().err


def test_the_command_prints_a_sentence_for_each_cell(trained, capsys):
    found = trained()
    assert main(["claim", "study"]) == 0
    sentences = [each["sentence"] for each in found.values()]
    assert capsys.readouterr().out.splitlines() == sentences
    assert main(["claim", "study", "--plan"]) == 0
    assert "is found with a probability of" in capsys.readouterr().out
    std = np.std(
        [score_noise("large", "", s) - score_noise("pole", "", s) for s in range(15)],
        ddof=1,
    )
    assert claims(plan=True)["large"]["plan"]["std"] == pytest.approx(std)


def test_the_report_has_the_sentences(trained):
    found = trained()
    page = rlcli.report("study", episodes=0, output="page.html")
    text = page.read_text().replace("\\u2013", "–")
    for each in found.values():
        assert json.dumps(each["sentence"], ensure_ascii=False)[1:-1] in text


@pytest.mark.slow
def test_claims_import_no_jax(trained):
    trained()
    assert not imports_jax("rlcli.claim('study')")
