"""The results of a run at bsuite's episodes."""

import json

import pytest
from bsuite.utils.wrappers import _logarithmic_logging

from rlcli.studies.bsuite.episode_points import logged_episodes, read_results


def test_results_have_the_episodes_at_which_bsuite_logs():
    expected = [each for each in range(1, 10_001) if _logarithmic_logging(each)]
    assert logged_episodes(10_000) == expected
    assert logged_episodes(16) == [*range(1, 11), 12, 14]


def write(folder, rows):
    lines = [json.dumps(row) for row in rows]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def row(steps, ep, seed=0, **fields):
    own = {"t": 5, "G": 1.0, "total_return": 2.0 * ep, "total_raw_return": 3.0 * ep}
    own["max_raw_return"] = steps
    return {"T": steps, "seed": seed, "ep": ep, **own, **fields}


def test_totals_are_interpolated_and_other_fields_are_those_of_the_row_before(tmp_path):
    write(tmp_path, [row(20, 4), row(60, 6, t=7), row(80, 10)])
    rows = read_results(tmp_path)[0]
    assert [each["episode"] for each in rows] == [*range(1, 11)]
    fifth, last = rows[4], rows[-1]
    assert fifth == {
        "episode": 5.0,
        "steps": 40.0,
        "episode_len": 5.0,
        "episode_return": 1.0,
        "total_return": 10.0,
        "raw_return": 15.0,
        "best_episode": 20.0,
    }
    assert (last["steps"], last["total_return"], last["best_episode"]) == (80, 20, 80)


def test_seeds_are_separate_and_evaluations_and_unfinished_episodes_are_left_out(
    tmp_path,
):
    evaluation = {"T": 9, "seed": 0, "evaluation": {"mean": 1.0}}
    begun = {"T": 1, "seed": 0, "ep": 0}
    write(tmp_path, [begun, row(9, 3), row(9, 2, seed=5), evaluation])
    results = read_results(tmp_path)
    assert {seed: len(rows) for seed, rows in results.items()} == {0: 3, 5: 2}


def test_a_run_without_episodes_has_no_results(tmp_path):
    assert read_results(tmp_path) == {}
    write(tmp_path, [{"T": 1, "seed": 0, "ep": 0}])
    assert read_results(tmp_path) == {}


@pytest.mark.parametrize("episodes", [1, 2, 13])
def test_results_end_at_the_last_logged_episode(tmp_path, episodes):
    write(tmp_path, [row(9, episodes)])
    assert read_results(tmp_path)[0][-1]["episode"] == logged_episodes(episodes)[-1]
