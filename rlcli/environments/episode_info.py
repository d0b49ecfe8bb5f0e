"""Episode info: which numbers of `info` the episodes of an environment log, and how.

A compiled environment has `Environment.info` for the loops, which aggregate
`TimeStep.info` with `accumulate` and `finish`. Environments on the host aggregate it
themselves (`adapters.info_recorder`).
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from rlcli.errors import RlcliError, quote
from rlcli.types import Array, Environment, InfoRule

MAX_INFO = 32  # numbers of one environment: each has three fields in rows of metrics
# The fields of rlcli itself in a row of `metrics.jsonl`. Names with a dot are settings.
ROW_FIELDS = frozenset(
    (
        *("T", "seed", "ep", "G", "t", "avg_G", "avg_r", "updates", "frozen"),
        *("restarts", "evaluation", "dt", "steps_per_second", "updates_per_second"),
        "time",
    )
)
# Those, and the fields of an evaluation.
RESERVED = ROW_FIELDS | {"mean", "std", "min", "max", "length", "episodes"}


def log_info(env: Environment, rules: Mapping[str, InfoRule], name: str) -> Environment:
    """Logs numbers of `info` by these rules; without rules as `default_rule` says.

    Args:
        rules: what an episode logs of each number: the last one, the sum or the mean.
        name: the environment, for messages.
    """
    if not rules:
        return env
    if len(rules) > MAX_INFO:
        message = f"{name}: `info` has {len(rules)} names"
        raise RlcliError(message, f"use at most {MAX_INFO}")
    if taken := sorted(rules.keys() & RESERVED):
        message = f"{name}: `info` cannot log {quote(taken[0])}"
        raise RlcliError(message, "metrics and evaluations have such a field")
    if env.host is None:
        return env._replace(info=rules)
    if env.host.remake is None:
        message = f"{name} cannot log `info`"
        raise RlcliError(message, "build it with `host_environment`")
    return env.host.remake(info=rules)


def default_rule(name: str, *, is_bool: bool) -> InfoRule:
    """What an episode logs of a number without a rule."""
    return "last" if is_bool or "success" in name else "sum"


def logged_names(env: Environment, info: Mapping[str, Any]) -> list[str]:
    """The names of the values that a compiled environment reports and logs."""
    if unknown := sorted(env.info.keys() - info.keys()):
        known = ", ".join(map(quote, sorted(info))) or "nothing"
        message = f"the environment has no `info` named {quote(unknown[0])}"
        raise RlcliError(message, f"it reports {known}")
    return sorted(env.info or info)[:MAX_INFO]


def accumulate(
    rules: Mapping[str, InfoRule],
    running: Mapping[str, Array],
    info: Mapping[str, Array],
) -> dict[str, Array]:
    """What the current episodes log after a step: the last value, or the sum."""
    result = {}
    for name, before in running.items():
        value = jnp.asarray(info[name])
        rule = default_rule(name, is_bool=value.dtype == np.bool_)
        is_last = rules.get(name, rule) == "last"
        value = value.astype(jnp.float32)
        result[name] = value if is_last else before + value
    return result


def finish(
    rules: Mapping[str, InfoRule], running: Mapping[str, Array], length: Array
) -> dict[str, Array]:
    """What an episode of this length logs, from the result of `accumulate`."""
    return {
        name: value / length if rules.get(name) == "mean" else value
        for name, value in running.items()
    }
