"""Metric labels: what readers call the metrics of runs, and which values are better.

Figures, tables, pages and the panel take their labels from here.
"""

from collections.abc import Callable
from typing import Any

EVALUATION = "evaluation"  # the field of an evaluation; its metrics are `evaluation.…`

_LABELS = {
    "T": "steps",
    "ep": "episodes",
    "G": "return of the last episode",
    "t": "length of the last episode",
    "avg_G": "return, training",
    "avg_r": "reward per step",
    "dt": "time per step (ms)",
    "kl": "KL divergence",
    "q": "action value",
    "td_error": "TD error",
    "evaluation.mean": "return, evaluation",
    "evaluation.std": "standard deviation of returns, evaluation",
    "evaluation.min": "lowest return, evaluation",
    "evaluation.max": "highest return, evaluation",
    "evaluation.length": "episode length, evaluation",
    "evaluation.success": "success rate, evaluation",
    "evaluation.is_success": "success rate, evaluation",
}


def label_metric(name: str) -> str:
    """What a reader calls a metric: `return, evaluation` for `evaluation.mean`.

    The value of an option, such as `optimizer.learning_rate`, keeps its place in the
    recipe.
    """
    if name in _LABELS:
        return _LABELS[name]
    head, dot, tail = name.partition(".")
    if dot and head == EVALUATION:
        return f"{label_metric(tail)}, evaluation"
    return name if dot else name.replace("_", " ")


def choose_best(name: str) -> Callable[..., Any] | None:
    """`max` or `min`, which finds the best value of a metric; None if none is better.

    Returns, rewards and successes are better if they are higher, and losses, errors,
    costs and regret if they are lower.
    """
    last = name.rpartition(".")[2]
    if last in ("mean", "min", "max", "G", "avg_G", "avg_r"):
        return max
    if any(word in last for word in ("success", "reward", "return")):
        return max
    return min if last.endswith(("loss", "error", "cost", "regret")) else None
