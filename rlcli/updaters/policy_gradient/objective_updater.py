"""The decorator of policy-gradient updaters: an objective becomes an updater."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

from rlcli.errors import RlcliError, quote, suggest
from rlcli.types import Updater
from rlcli.updaters import Parts
from rlcli.updaters.decorator import (
    describe_function,
    describe_result,
    require_parentheses,
    require_type,
    updater_decorator,
)
from rlcli.updaters.policy_gradient.actor_critic import (
    UPDATER_METRICS,
    ActorCriticOptions,
    Objective,
    ObjectiveContext,
    PolicyLoss,
    actor_critic,
)

# The options of every objective.
COMMON_OPTIONS = ("value_weight", "normalize_advantage", "regularizers")
_SECTIONS = {
    "policy": "sampled",
    "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
    "unroll": 128,
}


def objective(
    no_function: None = None,
    /,
    *,
    requires: tuple[str, ...] = (),
    sequence_length: str = "",
    replays: Literal["any", "on_policy"] = "on_policy",
    preset_of: str = "",
    **defaults: Any,
) -> Callable[[Objective], Callable[..., Updater]]:
    """Decorator that registers an on-policy updater under the name of its objective.

    An objective is a function of `ObjectiveContext` that returns a `PolicyLoss`. The
    options of the updater are the objective's keyword-only parameters, those of
    `ActorCriticOptions` in `COMMON_OPTIONS`, and those in `defaults`, which are default
    values. `defaults` also override those of recipes with this updater: `policy`,
    `tracer`, `replay`, `unroll` and `network`.

    `requires` lists the extras that the objective reads; `kl_limit` adds `log_prob`.
    `sequence_length` names the option of the objective that is the number of
    consecutive samples of a replay. `replays: any` is for objectives that may learn
    from the actions of earlier policies. `preset_of` names the objective that this one
    is, with other defaults.
    """
    require_parentheses(objective, no_function)
    _check_requires(requires)

    def build(
        objective_function: functools.partial, options: ActorCriticOptions, parts: Parts
    ) -> Updater:
        function = objective_function.func
        name, label = function.__name__, describe_function(objective, function)
        apply = functools.partial(_apply_objective, objective_function, label)
        extras = requires
        if options.kl_limit is not None and "log_prob" not in requires:
            extras = (*requires, "log_prob")  # `approximate_kl` reads it
        updater = actor_critic(name, parts, apply, options, extras)
        updater = updater._replace(traits=updater.traits._replace(replays=replays))
        if not sequence_length:
            return updater
        if sequence_length not in objective_function.keywords:
            raise RlcliError(
                f"`sequence_length` of `@objective` names `{sequence_length}`, which "
                f"is not an option of {label} itself",
                suggest(sequence_length, objective_function.keywords),
            )
        return updater._replace(
            traits=updater.traits._replace(
                sequence_length=objective_function.keywords[sequence_length]
            )
        )

    option_names = {*COMMON_OPTIONS, *defaults}
    names = [name for name in ActorCriticOptions._fields if name in option_names]
    return updater_decorator(
        objective, build, ActorCriticOptions, names, defaults, _SECTIONS, preset_of
    )


def _check_requires(requires: Any) -> None:
    """Refuses anything but a tuple or list of names."""
    if isinstance(requires, tuple | list) and all(
        isinstance(name, str) for name in requires
    ):
        return
    # Each letter of a text would be an extra.
    name = requires if isinstance(requires, str) else "log_prob"
    raise RlcliError(
        f"`requires` of `@objective` is {quote(requires)} instead of a tuple of names",
        f'write `requires=("{name}",)`, with a comma',
    )


def _apply_objective(
    function: Objective, label: str, context: ObjectiveContext
) -> PolicyLoss:
    """Applies an objective; raises an error unless it returns one loss per row.

    `label` names the objective in the error.
    """
    result = function(context)
    require_type(label, result, PolicyLoss, "return `PolicyLoss(loss, metrics)`")
    require_type(
        label,
        result.metrics,
        Mapping,
        'return `PolicyLoss(loss, {"name": metric})`',
        "returned, as its metrics,",
    )
    arrays = {"the loss": result.loss}
    for name, metric in result.metrics.items():
        if not isinstance(name, str):
            raise RlcliError(
                f"{label} returned a metric named {quote(name)}, not a string"
            )
        if name in UPDATER_METRICS:
            raise RlcliError(
                f"{label} returned a metric {quote(name)}, but rlcli logs its own "
                "metric of this name",
                "choose another name",
            )
        arrays[f"the metric {quote(name)}"] = metric
    for field, array in arrays.items():
        if getattr(array, "shape", None) != context.weight.shape:
            raise RlcliError(
                f"{label}: {field} is {describe_result(array)} instead of an array of "
                f"shape {context.weight.shape}, the shape of its rows",
                "return one number per row: the updater computes the mean",
            )
    return result
