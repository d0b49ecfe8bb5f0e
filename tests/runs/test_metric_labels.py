"""Metric labels: what readers call metrics, what they mean, and which are better."""

import pytest

from rlcli.runs.metric_labels import choose_best, describe_metric, label_metric


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


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("kl", "KL divergence from the policy before the update to that after it"),
        ("optimizer.learning_rate", "value of this option"),
        ("evaluation.energy", "mean of `energy` over the episodes of an evaluation"),
        ("total_regret", "sum over all episodes of `regret`"),
        ("energy", ""),
    ],
)
def test_a_metric_has_a_meaning(name, meaning):
    assert describe_metric(name).startswith(meaning)
    assert bool(describe_metric(name)) == bool(meaning)
