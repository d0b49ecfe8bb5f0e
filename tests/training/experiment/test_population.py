"""A population: good numbers spread, and a resume makes the same rounds."""

import json

import jax
import numpy as np
import pytest
from folders import read_rows

import rlcli
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe, read_recipe
from rlcli.runs import checkpoint
from rlcli.runs.frozen import FrozenSeed
from rlcli.runs.population_rounds import (
    PopulationSettings,
    SearchedOption,
    find_lineage,
    read_rounds,
    write_settings,
)
from rlcli.runs.run_folder import Run
from rlcli.training.experiment.experiment import ActiveRun, advance_together
from rlcli.training.experiment.population import Population
from rlcli.training.experiment.together import build_experiments
from rlcli.training.new_run import NewRun, train_together
from rlcli.training.run_writer import RunWriter
from rlcli.updaters.learner import NOT_FAILED

LAKE = """
environment: FrozenLakeNonSlippery-v0
network: table
policy: {name: epsilon_greedy, epsilon: 0.5}
updater: {name: q_learning, loss: mse}
optimizer: {name: sgd, learning_rate: 0.5}
train:
  steps: 4_000
  seeds: 2
  log: {every: 400}
  evaluate: {every: 400, episodes: 2}
  checkpoint: {every: 700, keep: 3}
"""
KEY = "optimizer.learning_rate"
# Steps that are too small to learn anything, and one that is not.
RATES = 1e-30, 2e-30, 0.5, 3e-30, 4e-30
NAMES = tuple("abcde")
OPTION = SearchedOption(KEY, (KEY,), 1e-30, 1.0, True)


@pytest.fixture(autouse=True)
def _files(folder):
    (folder / "lake.yaml").write_text(LAKE)


def write_population(folder, **changes) -> None:
    folder.mkdir(exist_ok=True)
    fields = {"members": NAMES, "seed": 0, "ready": 1, "options": (OPTION,)}
    write_settings(folder, PopulationSettings(**fields | changes))


def settings_of(rate: float) -> list[str]:
    return [f"{KEY}={rate}"]


def begin(folder, **changes) -> tuple[list[ActiveRun], Population]:
    """A population in this process, at its beginning."""
    write_population(folder, **changes)
    recipes = [load_recipe("lake.yaml", settings_of(rate)) for rate in RATES]
    experiments = build_experiments(recipes, [0, 1], is_new=True)
    experiments[0].program.begin()
    runs = [Run(folder / name) for name in NAMES]
    members = [*map(ActiveRun, runs, experiments)]
    return members, Population(members)


def train_to_the_end(members, population) -> list:
    """All reports of the first round's length, one list per chunk."""
    experiments = [member.experiment for member in members]
    reports = []
    while not experiments[0].is_finished:
        chunk = population.advance(advance_together(experiments, 10_000))
        reports.append((experiments[0].step, chunk))
    return reports


@pytest.mark.slow
def test_a_good_learning_rate_spreads_with_the_state_that_it_has_made(folder):
    members, population = begin(folder / "p")
    reports = train_to_the_end(members, population)
    program = members[0].experiment.program
    rounds = read_rounds(folder / "p", NAMES, [KEY])
    assert [each.step for each in rounds] == [*range(400, 4_000, 400)]
    first = dict(zip(NAMES, ({KEY: rate} for rate in RATES), strict=True))
    lineages = {name: find_lineage(rounds, name, first) for name in NAMES}
    descendants = [n for n in NAMES if lineages[n][0].member == "c"]
    assert len(descendants) >= 4
    learned = reports[-1][1]
    for name, report, stages in zip(NAMES, learned, lineages.values(), strict=True):
        returns = [row["evaluation"]["mean"] for row in report.evaluation]
        assert (returns == [1.0, 1.0]) == (name in descendants)
        # The numbers of the program, of the record and of the metrics are the same.
        index = NAMES.index(name)
        numbers = np.asarray(program.progress.numbers)[2 * index : 2 * index + 2]
        place = [*program.setup.numbers].index(KEY)
        last = stages[-1].options[KEY]
        np.testing.assert_array_equal(numbers[:, place], np.float32(last))
        assert {np.float32(row[KEY]) for row in report.rows} == {np.float32(last)}
        assert 1e-30 <= last <= 1.0
    # Rows say which member has been copied.
    copied = {
        (step, name): row.get("copied")
        for step, chunk in reports
        for name, report in zip(NAMES, chunk, strict=True)
        for row in report.evaluation
    }
    for each in rounds:
        for name, member in each.members.items():
            assert copied[each.step, name] == member.copied


@pytest.mark.slow
def test_rounds_may_be_rarer_than_evaluations(folder):
    members, population = begin(folder / "p", ready=4)
    train_to_the_end(members, population)
    assert [each.step for each in read_rounds(folder / "p", NAMES, [KEY])] == [
        1_600,
        3_200,
    ]


@pytest.mark.slow
def test_a_frozen_seed_is_healed_by_a_copy(folder):
    members, population = begin(folder / "p")
    experiments = [member.experiment for member in members]
    reports = advance_together(experiments, 400)
    experiments[0].failures.frozen[1] = FrozenSeed(9, "the loss is not finite")
    rows = [{**row, "frozen": "x"} for row in reports[0].evaluation]
    reports[0] = reports[0]._replace(evaluation=rows)
    population.advance(reports)
    (made,) = read_rounds(folder / "p", NAMES, [KEY])
    assert made.members["a"].score is None and made.members["a"].copied
    assert experiments[0].failures.frozen == {}
    agent, state = experiments[0].setup.agent, experiments[0].program.progress.agent
    failed = jax.vmap(agent.failed_at)(state)
    assert (np.asarray(failed)[:2] == NOT_FAILED).all()


def test_a_population_has_the_members_of_its_record(folder):
    write_population(folder / "p", members=NAMES[:4])
    recipes = [load_recipe("lake.yaml", settings_of(rate)) for rate in RATES]
    runs = [Run(folder / "p" / name) for name in NAMES]
    members = [*map(ActiveRun, runs, build_experiments(recipes, [0, 1], is_new=True))]
    with pytest.raises(RlcliError, match="is of another population"):
        Population(members)
    (folder / "p/population.json").unlink()
    with pytest.raises(RlcliError, match="is damaged, or missing"):
        Population(members)


def train(folder) -> None:
    write_population(folder)
    runs = [
        NewRun(
            read_recipe("lake.yaml", settings_of(rate)),
            {"run": folder / name, "population": True},
        )
        for rate, name in zip(RATES, NAMES, strict=True)
    ]
    train_together(runs, quiet=True, trust=True)


class Killed(BaseException):
    """What ends a process in a test, instead of a signal."""


@pytest.mark.slow
def test_a_population_that_is_killed_makes_the_same_rounds_again(folder, monkeypatch):
    train(folder / "whole")
    save, saved = RunWriter.save, []

    def save_some(writers):
        for writer in writers:
            if len(saved) == 13:  # in the middle of the checkpoints of step 2 000
                raise Killed
            saved.append(writer)
            save(writer)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("rlcli.training.run_loop.save_all", save_some)
        train(folder / "cut")
    whole, cut = folder / "whole", folder / "cut"
    before = read_rounds(cut, NAMES, [KEY])
    assert before == read_rounds(whole, NAMES, [KEY])[: len(before)]
    rlcli.resume(cut / "d", quiet=True)
    for name in NAMES:
        info = json.loads((cut / name / "run.json").read_text())
        (resume,) = info["resumes"]
        assert resume["step"] < before[-1].step  # a round was made twice
        assert info["population"] is True
        assert read_rows(cut / name) == read_rows(whole / name)
        ours, theirs = (
            checkpoint.read(each / name / "checkpoints/000004000.pkl.lz4")["progress"]
            for each in (cut, whole)
        )
        for path, leaf in theirs.items():
            assert ours[path].tobytes() == leaf.tobytes()
    record = "rounds.jsonl"
    assert (cut / record).read_bytes() == (whole / record).read_bytes()
