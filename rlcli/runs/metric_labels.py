"""Metric labels: what readers call metrics and their statistics, and what is better.

Figures, tables, pages and the panel take their labels from here.
"""

from collections.abc import Callable
from typing import Any

EVALUATION = "evaluation"  # the field of an evaluation; its metrics are `evaluation.…`

STATISTICS = {
    **{"mean": "mean", "median": "median", "iqm": "IQM"},
    "optimality_gap": "optimality gap",
}

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


_MEANINGS = {
    "T": "environment steps of this seed so far",
    "ep": "episodes finished so far",
    "G": "return of the last episode: the sum of its rewards",
    "t": "length of the last episode, in steps",
    "avg_G": "running mean of the returns, over about ten episodes of training",
    "avg_r": "return of the last episode divided by its length",
    "dt": "milliseconds per environment step",
    "steps_per_second": "environment steps per second, of all seeds",
    "updates_per_second": "updates per second, of all seeds",
    "updates": "updates so far",
    "restarts": "restarts of environments so far",
    "loss": "the loss of the updater, before its gradient step",
    "policy_loss": "the loss of the policy alone",
    "value_loss": "the loss of the value function alone",
    "gradient_norm": "Euclidean norm of the gradient, before clipping",
    "td_error": "mean absolute difference between targets and action values",
    "q": "mean value of the actions that were taken",
    "v": "mean value of the states",
    "value": "mean value that the model predicts",
    "advantage": "mean advantage of the actions",
    "entropy": "mean entropy of the policy; of a continuous one it may be negative",
    "temperature": "weight of the entropy in the targets",
    "kl": "KL divergence from the policy before the update to that after it",
    "clip_fraction": "fraction of rows whose probability ratio is clipped",
    "explained_variance": "1 is a perfect value function, 0 one no better than a "
    "constant",
    "stopped": "fraction of gradient steps skipped because of `kl_limit`",
    "ratio": "mean ratio of the probabilities of policy and behaviour",
    "log_prob": "mean log probability of the actions of the data",
    "imitated": "fraction of rows with a weight above 0",
    "penalty": "mean penalty on values of actions that the data lacks",
    "transition": "negative log likelihood of the next observation in the model",
    "reward": "negative log likelihood of the reward in the model",
    "reward_loss": "the loss of the predicted rewards alone",
    "continuation": "cross-entropy of whether the episode continues in the model",
    "intrinsic_reward": "mean intrinsic reward of the rows of the update",
    "predictor_loss": "the loss of the predictor, which is the novelty of the states",
    "fitness": "mean return over the members of the population",
    "fitness_best": "return of the fittest member of the population",
    "evaluation.mean": "mean return of the episodes of an evaluation",
    "evaluation.std": "standard deviation of the returns of an evaluation",
    "evaluation.min": "lowest return of an evaluation",
    "evaluation.max": "highest return of an evaluation",
    "evaluation.length": "mean length of the episodes of an evaluation, in steps",
    "evaluation.episodes": "number of episodes of an evaluation",
}
_PREFIXES = {"total_": "sum over all episodes", "max_": "maximum over episodes"}


def describe_metric(name: str) -> str:
    """What a metric measures, in a phrase; "" for what only its environment knows."""
    if name in _MEANINGS:
        return _MEANINGS[name]
    head, dot, tail = name.partition(".")
    if dot and head == EVALUATION:
        return f"mean of `{tail}` over the episodes of an evaluation"
    if dot:
        return "value of this option of the recipe, which follows a schedule"
    for prefix, meaning in _PREFIXES.items():
        if name.startswith(prefix):
            return f"{meaning} of `{name.removeprefix(prefix)}`"
    return ""


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
