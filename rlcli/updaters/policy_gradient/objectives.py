"""The decorator of policy-gradient updaters: an objective becomes an updater."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax.numpy as jnp

from rlcli.errors import RlcliError
from rlcli.types import Updater
from rlcli.updaters.decorator import Parts, updater_decorator
from rlcli.updaters.policy_gradient.actor_critic import ActorCriticOptions, actor_critic
from rlcli.updaters.policy_gradient.objective_context import (
    Objective,
    ObjectiveContext,
    PolicyLoss,
)

# The options of every objective.
COMMON_OPTIONS = ("value_weight", "normalize_advantage", "regularizers")
_ADVANTAGE = {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95}


def objective(
    *,
    policy: str = "sampled",
    tracer: str | Mapping[str, Any] = _ADVANTAGE,
    unroll: int = 128,
    requires: tuple[str, ...] = (),
    rows: str = "",
    replays: Literal["any", "on_policy"] = "on_policy",
    **defaults: Any,
) -> Callable[[Objective], Callable[..., Updater]]:
    """Decorator that registers an on-policy updater under the name of its objective.

    An objective is a function of `ObjectiveContext` that returns a `PolicyLoss`. The
    options of the updater are the objective's keyword-only parameters, those of
    `ActorCriticOptions` in `COMMON_OPTIONS`, and those in `defaults`, which are default
    values.

    `policy`, `tracer` and `unroll` are the defaults of recipes. `requires` lists the
    extras that the objective reads. `rows` names the option of the objective that is
    the number of consecutive rows in a sample of a replay. `replays: any` is for
    objectives that may learn from the actions of earlier policies.
    """

    def build(
        objective_function: functools.partial, options: ActorCriticOptions, parts: Parts
    ) -> Updater:
        name = objective_function.func.__name__
        apply = functools.partial(_apply_objective, objective_function, name)
        updater = actor_critic(name, parts, apply, options, requires)
        updater = updater._replace(replays=replays)
        if not rows:
            return updater
        return updater._replace(rows=objective_function.keywords[rows])

    option_names = {*COMMON_OPTIONS, *defaults}
    names = [name for name in ActorCriticOptions._fields if name in option_names]
    facts = {"policy": policy, "tracer": tracer, "unroll": unroll}
    return updater_decorator(build, ActorCriticOptions, names, defaults, facts)


def _apply_objective(
    function: Objective, name: str, context: ObjectiveContext
) -> PolicyLoss:
    """Applies an objective; raises an error unless it returns one loss per row."""
    result = function(context)
    if not isinstance(result, PolicyLoss):
        raise RlcliError(
            f"objective `{name}` returned `{type(result).__name__}` instead of "
            "`PolicyLoss`",
            "return `PolicyLoss(loss, metrics)`",
        )
    arrays = {"loss": result.loss, **result.metrics}
    for key, array in arrays.items():
        if jnp.shape(array) != context.weight.shape:
            raise RlcliError(
                f"objective `{name}` returned a `{key}` of shape {jnp.shape(array)}, "
                f"but its rows have the shape {context.weight.shape}",
                "return one number per row: the updater computes the mean",
            )
    return result
