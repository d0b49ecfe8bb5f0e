"""Scores are equal to those of bsuite on the same results."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from bsuite.experiments import summary_analysis
from bsuite.logging import csv_load, logging_utils

from rlcli.studies.bsuite import results
from rlcli.studies.bsuite.episode_points import logged_episodes, write_csv
from rlcli.studies.bsuite.experiments import EXPERIMENTS
from rlcli.studies.bsuite.scores import score_experiments, score_tags


def make_rows(rng, experiment, last):
    """Rows of an id whose agent learns by chance: totals that only rise."""
    episodes = np.array(logged_episodes(last), float)
    skill = rng.uniform(0, 1)
    share = skill * rng.uniform(0.9, 1.1, len(episodes))
    regret = {"Catch": 2, "SimpleBandit": 1, "MNISTBandit": 2, "UmbrellaChain": 1}
    returns = {"Cartpole": 1000, "CartpoleSwingup": 700, "MountainCar": -1000}
    scale = returns.get(experiment.environment.name, 1.1)
    columns = {
        "steps": episodes * 10,
        "episode": episodes,
        "total_return": episodes * np.clip(share, 0.8, 1) * scale,
        "episode_len": episodes * 0 + 10,
        "episode_return": share,
        "total_regret": episodes * share * regret.get(experiment.environment.name, 1),
        "raw_return": episodes * share * scale,
        "best_episode": np.full(len(episodes), skill * scale),
        "total_bad_episodes": episodes * np.clip(share + 0.5, 0, 1),
        "total_perfect": episodes * np.clip(1 - share, 0, 1),
    }
    table = np.array([*columns.values()]).T
    return [dict(zip(columns, map(float, row), strict=True)) for row in table]


def make_results(seed, last=None):
    rng = np.random.default_rng(seed)
    return {
        name: {
            index: make_rows(rng, experiment, last or experiment.environment.episodes)
            for index in range(len(experiment.settings))
        }
        for name, experiment in EXPERIMENTS.items()
    }


def make_frame(results):
    frames = [
        pd.DataFrame(rows).assign(bsuite_id=f"{name}/{index}")
        for name, found in results.items()
        for index, rows in found.items()
    ]
    return logging_utils.join_metadata(pd.concat(frames, sort=False))


@pytest.fixture
def old_pandas(monkeypatch):
    """bsuite uses functions that pandas 2 and 3 have removed."""
    append = lambda self, other: pd.concat([self, other])  # noqa: E731
    monkeypatch.setattr(pd.Series, "append", append, raising=False)
    number = lambda self: float(self.item())  # noqa: E731
    monkeypatch.setattr(pd.Series, "__float__", number, raising=False)


def partial(results):
    """Ids that have ended early, or are missing."""
    rng = np.random.default_rng(9)
    return {
        name: {
            index: rows[: len(rows) - int(rng.integers(0, 3))]
            for index, rows in found.items()
            if rng.uniform() < 0.7
        }
        for name, found in results.items()
    }


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "results",
    [
        make_results(0),
        make_results(1),
        make_results(2, last=700),
        partial(make_results(3)),
    ],
    ids=["complete", "other", "short", "partial"],
)
def test_scores_are_those_of_bsuite(results, old_pandas):
    theirs = summary_analysis.bsuite_score(make_frame(results)).set_index("bsuite_env")
    ours = score_experiments(results)
    assert {each["experiment"] for each in ours} == {*theirs.index} == {*EXPERIMENTS}
    for each in ours:
        expected = theirs.loc[each["experiment"]]
        actual = np.nan if each["score"] is None else each["score"]
        np.testing.assert_allclose(actual, expected.score, rtol=1e-12)
        assert each["finished"] == expected.finished
        assert (each["type"], str(tuple(each["tags"]))) == (
            expected.type,
            expected.tags,
        )
    means = summary_analysis.ave_score_by_tag(theirs.reset_index(), sweep_vars=[])
    expected_means = dict(zip(means.tag, means.score, strict=True))
    for each in score_tags(ours):
        actual = np.nan if each["score"] is None else each["score"]
        np.testing.assert_allclose(actual, expected_means[each["tag"]], rtol=1e-12)


def test_the_random_results_reach_all_parts_of_the_scale():
    scores = [each["score"] for each in score_experiments(make_results(0))]
    assert min(scores) < 0.3 and max(scores) > 0.6


def test_bsuite_loads_the_files_of_results(tmp_path):
    found = {"catch_noise": {3: make_results(0)["catch_noise"][3]}}
    write_csv(found["catch_noise"][3], tmp_path, "catch_noise/3")
    frame, _ = csv_load.load_bsuite(str(tmp_path))
    expected = make_frame(found)
    for column in expected.columns:
        assert frame[column].equals(expected[column]), column


@pytest.mark.filterwarnings("ignore:linestyle is redundantly defined:UserWarning")
def test_the_radar_has_the_shape_of_that_of_bsuite(old_pandas):
    tags = score_tags(score_experiments(make_results(0)))
    shapes = []
    for fill in (
        lambda axes: results._fill(axes, tags, "agent"),
        lambda axes: summary_analysis._radar(
            pd.DataFrame(tags)[["tag", "score"]],
            axes,
            "agent",
            [each["tag"] for each in tags],
            color="k",
        ),
    ):
        figure = plt.figure()
        axes = figure.add_subplot(projection="polar")
        fill(axes)
        shapes.append(axes.lines[0].get_xydata() % (2 * np.pi))
        plt.close(figure)
    np.testing.assert_allclose(*shapes, atol=1e-9)
