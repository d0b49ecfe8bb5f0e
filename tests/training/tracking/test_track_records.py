"""Track records: names, means over seeds, and what is left out."""

import numpy as np

from rlcli.training.tracking.track_records import (
    MAX_SEEDS,
    RETURNS,
    Results,
    make_records,
)

ROW = {"T": 10, "ep": 3, "G": 1.0, "avg_G": 4.0, "loss": 0.5, "time": 7.0, "dt": 1.0}
EVALUATION = {"mean": 6.0, "std": 1.0, "min": 5.0, "max": 7.0, "length": 9.0}


def test_metrics_and_an_evaluation_of_a_step_are_one_record():
    rows = [{**ROW, "seed": 4, "steps_per_second": 100.0, "policy.epsilon": 0.1}]
    rows += [{"T": 10, "seed": 4, "evaluation": {**EVALUATION, "episodes": 2}}]
    (record,) = make_records(Results(rows))
    assert (record.step, record.seed, record.time) == (10, None, 7.0)
    assert record.scalars == {
        "train/episodes": 3.0,
        "train/return": 1.0,
        "train/average_return": 4.0,
        "train/loss": 0.5,
        "train/policy.epsilon": 0.1,
        "speed/steps_per_second": 100.0,
        "evaluation/return": 6.0,
        "evaluation/return_std": 1.0,
        "evaluation/return_min": 5.0,
        "evaluation/return_max": 7.0,
        "evaluation/length": 9.0,
    }


def test_several_seeds_have_their_mean_and_a_record_each():
    rows = [{**ROW, "seed": seed, "avg_G": value} for seed, value in ((0, 2), (1, 6))]
    mean, first, second = make_records(Results(rows))
    assert [mean.seed, first.seed, second.seed] == [None, 0, 1]
    assert mean.scalars["train/average_return"] == 4.0
    assert mean.scalars["train/average_return_std_over_seeds"] == 2.0
    assert first.scalars["train/average_return"] == 2.0
    assert "train/average_return_std_over_seeds" not in first.scalars


def test_frozen_seeds_are_not_in_the_mean():
    rows = [{**ROW, "seed": 0}, {**ROW, "seed": 1, "avg_G": 9.0, "frozen": "nan"}]
    mean, _, frozen = make_records(Results(rows))
    assert mean.scalars["train/average_return"] == 4.0
    assert frozen.scalars["train/average_return"] == 9.0


def test_many_seeds_have_only_their_mean():
    rows = [{**ROW, "seed": seed} for seed in range(MAX_SEEDS + 1)]
    (record,) = make_records(Results(rows))
    assert record.seed is None


def test_numbers_that_are_not_finite_are_left_out():
    row = {"T": 1, "seed": 0, "G": None, "loss": float("nan"), "q": float("inf")}
    (record,) = make_records(Results([{**row, "ep": 0}]))
    assert record.scalars == {"train/episodes": 0.0}


def test_histograms_and_films_belong_to_the_last_step(tmp_path):
    rows = [{**ROW, "T": step, "seed": seed} for step in (10, 20) for seed in (0, 1)]
    values = [
        {RETURNS: np.array([1.0, np.nan]), "parameters/w": np.ones((2, 2))},
        {RETURNS: np.array([2.0, 3.0]), "parameters/w": np.zeros((2, 2))},
    ]
    films = {"evaluation/film": tmp_path}
    early = [record for record in make_records(Results(rows)) if record.step == 10]
    assert not any(record.histograms or record.films for record in early)
    mean, first, second = [
        record
        for record in make_records(Results(rows, values, films))
        if record.step == 20
    ]
    assert mean.films == films and not first.films
    assert mean.histograms.keys() == {RETURNS}
    assert mean.histograms[RETURNS].tolist() == [1.0, 2.0, 3.0]
    assert second.histograms["parameters/w"].tolist() == [0.0] * 4
