"""Metric labels: what readers call metrics, and which values are better."""

import pytest

from rlcli.runs.metric_labels import choose_best, label_metric


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("evaluation.mean", "return, evaluation"),
        ("avg_G", "return, training"),
        ("evaluation.length", "episode length, evaluation"),
        ("evaluation.success", "success rate, evaluation"),
        ("evaluation.energy_used", "energy used, evaluation"),
        ("gradient_norm", "gradient norm"),
        ("td_error", "TD error"),
        ("optimizer.learning_rate", "optimizer.learning_rate"),
        ("regularizers[0].weight", "regularizers[0].weight"),
    ],
)
def test_a_label_is_what_a_reader_calls_a_metric(name, label):
    assert label_metric(name) == label


@pytest.mark.parametrize(
    ("best", "names"),
    [
        (max, ["evaluation.mean", "avg_G", "evaluation.success", "reward_forward"]),
        (min, ["loss", "value_loss", "td_error", "total_regret", "evaluation.cost"]),
        (None, ["entropy", "evaluation.length", "q", "optimizer.learning_rate"]),
    ],
)
def test_the_best_of_returns_is_the_highest_and_of_losses_the_lowest(best, names):
    assert [choose_best(name) for name in names] == [best] * len(names)
