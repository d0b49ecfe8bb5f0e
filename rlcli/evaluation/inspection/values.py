"""Values: what a policy expects in whole episodes, against what it then gets."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from rlcli.environments.adapters.host_errors import close_or_warn
from rlcli.errors import RlcliError
from rlcli.evaluation.inspection.inspection_records import ValueBin, ValueRecord
from rlcli.evaluation.trained_policy import TrainedPolicy
from rlcli.runs.listing import get_nested_value

MOST_STEPS = 2_000  # of an episode
_BINS = 5
_CUT = 0.05  # the weight γᵏ of what a time limit cuts from a return that counts


def visit(
    policy: TrainedPolicy, episodes: int, seed: int
) -> tuple[ValueRecord | None, np.ndarray | None, Sequence[str]]:
    """Runs whole episodes of the greedy policy, and asks it at every step.

    Returns its values against what it got, its probabilities `[steps, actions]`, and
    the reasons why there are none.
    """
    try:
        env = policy.make_env()
    except RlcliError as error:  # a game, or a library that only makes vectors
        return None, None, [error.message]
    gamma = discount_of(policy.recipe)
    answers, reasons = dict[str, list[np.ndarray]](), dict[str, str]()
    returns, is_whole = [], []
    try:
        for episode in range(episodes):
            obs, _ = env.reset(seed=seed) if episode == 0 else env.reset()
            state = policy.initial_state(evaluation=seed)
            rewards, terminated, truncated = [], False, False
            while not (terminated or truncated) and len(rewards) < MOST_STEPS:
                _ask(policy, obs, state, answers, reasons)
                action, state = policy.act(obs, state)
                obs, reward, terminated, truncated, _ = env.step(action)
                rewards.append(float(reward))
            left = np.arange(len(rewards), 0, -1)  # steps up to the end
            returns.append(discounted_returns(rewards, gamma or 0.0))
            is_whole.append(terminated | ((gamma or 0.0) ** left < _CUT))
    finally:
        close_or_warn(f"environment `{policy.recipe['environment']['name']}`", env)
    columns = {name: np.stack(found) for name, found in answers.items()}
    record, whole = None, np.concatenate(is_whole)  # not cut by a time limit
    if "value" in columns and gamma is not None and whole.any():
        value, result = columns["value"][whole], np.concatenate(returns)[whole]
        entropy = float(columns["entropy"].mean()) if "entropy" in columns else None
        record = _compare(value, result, episodes=episodes, entropy=entropy)
    return record, columns.get("probabilities"), [*reasons.values()]


def _ask(
    policy: TrainedPolicy,
    obs: Any,
    state: Any,
    answers: dict[str, list[np.ndarray]],
    reasons: dict[str, str],
) -> None:
    """Adds what a policy answers at a step, or the reason why it has no answer."""
    for question in (_value, _distribution):
        if question.__name__ in reasons:
            continue
        try:
            found = question(policy, obs, state)
        except RlcliError as error:
            reasons[question.__name__] = error.message
            continue
        for name, value in found.items():
            answers.setdefault(name, []).append(np.asarray(value, np.float64))


def _value(policy: TrainedPolicy, obs: Any, state: Any) -> dict[str, Any]:
    return {"value": policy.value(obs, state)}


def _distribution(policy: TrainedPolicy, obs: Any, state: Any) -> dict[str, Any]:
    found = policy.distribution(obs, state)
    if not isinstance(policy.spaces.action, gymnasium.spaces.Discrete):
        return {"entropy": found.entropy()}
    return {"entropy": found.entropy(), "probabilities": found.probabilities}


def discount_of(recipe: Any) -> float | None:
    """γ of a recipe; None if it is a schedule, or values are in another unit."""
    gamma = get_nested_value(recipe, "tracer", "gamma")
    is_number = isinstance(gamma, int | float) and not isinstance(gamma, bool)
    is_scaled = get_nested_value(recipe, "normalize", "reward", default=False)
    return float(gamma) if is_number and not is_scaled else None


def discounted_returns(rewards: Sequence[float], gamma: float) -> np.ndarray:
    """Σ γᵏ r from each step on, `[steps]`."""
    sums, total = np.zeros(len(rewards)), 0.0
    for step in reversed(range(len(rewards))):
        total = rewards[step] + gamma * total
        sums[step] = total
    return sums


def _compare(value: np.ndarray, result: np.ndarray, **fields: Any) -> ValueRecord:
    """Value estimates against discounted returns of the same steps."""
    order = np.argsort(value, kind="stable")
    spread = float(result.var())
    has_spread = spread > 0 and value.var() > 0
    return ValueRecord(
        steps=len(value),
        value=float(value.mean()),
        result=float(result.mean()),
        correlation=float(np.corrcoef(value, result)[0, 1]) if has_spread else None,
        explained_variance=1 - float((result - value).var()) / spread
        if spread > 0
        else None,
        bins=[
            ValueBin(len(part), float(value[part].mean()), float(result[part].mean()))
            for part in np.array_split(order, _BINS)
            if len(part)
        ],
        **fields,
    )
