"""The result of a TD rule, checked while the update is traced."""

from __future__ import annotations

from typing import Any, NoReturn

import gymnasium

from rlcli.errors import RlcliError
from rlcli.networks.predictions import Particles
from rlcli.spaces import describe
from rlcli.updaters.critics import Backup
from rlcli.updaters.decorator import describe_result, require_type
from rlcli.updaters.td.rule_context import Rule, RuleContext

_PARTICLES = (
    "`bootstrap_value` is `Particles` `[T, B, M, K]`: M distributions of K values for "
    "each row"
)


def apply_rule(
    function: Rule, label: str, space: gymnasium.Space, context: RuleContext
) -> Backup:
    """Applies a rule; raises an error unless it returns particles for each row.

    `label` names the rule in the error. `space` is the action space.
    """
    result = function(context)
    require_type(label, result, Backup, "return `Backup(bootstrap_value, …)`")
    require_type(
        label,
        result.bootstrap_value,
        Particles,
        "return `Backup(context.next_q(), probability)`, or construct `Particles`",
        "bootstraps from",
    )
    # Actions may have axes of their own.
    _check_shapes(label, space, result, context.action.shape[:2])
    _refuse_sum(label, result)
    return result


def _check_shapes(
    label: str, space: gymnasium.Space, backup: Backup, rows: tuple[int, ...]
) -> None:
    """Refuses a backup whose arrays do not fit rows of the shape (T, B)."""

    def refuse(field: str, array: Any, expected: str) -> NoReturn:
        raise RlcliError(
            f"{label}: `{field}` is {describe_result(array)} instead of {expected}, "
            f"where [T, B] is {[*rows]}",
            _PARTICLES if field.startswith("bootstrap_value") else "",
        )

    (value, probability), policy = backup.bootstrap_value, backup.target_policy
    shape = _shape(value)
    if len(shape) != 4 or shape[:2] != rows:
        refuse("bootstrap_value.value", value, "an array [T, B, M, K]")
    if _shape(probability) != shape:
        expected = f"an array of shape {shape}"
        refuse("bootstrap_value.probability", probability, expected)
    mixture, axes_of_mixture = shape[:3], f"[T, B, M] with M = {shape[2]}"
    for field, array, full_shape, axes in (
        ("probability", backup.probability, mixture, axes_of_mixture),
        ("bonus", backup.bonus, mixture, axes_of_mixture),
        ("reward", backup.reward, rows, "[T, B]"),
    ):
        if not _broadcasts(_shape(array), full_shape):
            refuse(field, array, f"a number or an array that broadcasts to {axes}")
    if policy is not None:
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise RlcliError(
                f"{label} returned a `target_policy`, but the action space is "
                f"{describe(space)}",
                "leave it out: the target policy is then the acting policy",
            )
        if _shape(policy) != (*rows, int(space.n)):
            refuse("target_policy", policy, f"an array [T, B, A] with A = {space.n}")


def _refuse_sum(label: str, backup: Backup) -> None:
    """Refuses several distributions, each with the default probability of 1."""
    probability, number = backup.probability, backup.bootstrap_value.value.shape[2]
    if number > 1 and isinstance(probability, float | int) and probability == 1:
        raise RlcliError(
            f"{label} returned {number} distributions for each row without their "
            "`probability`, so its target would be their sum",
            "return `Backup(bootstrap_value, probability)`; to bootstrap from one of "
            "them, `jax.nn.one_hot(index, bootstrap_value.value.shape[-2])` is its "
            "probability",
        )


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array or a number; (−1,) for any other value."""
    return () if isinstance(value, float | int) else getattr(value, "shape", (-1,))


def _broadcasts(shape: tuple[int, ...], full_shape: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to another one, without changing that."""
    axes = zip(reversed(shape), reversed(full_shape), strict=False)
    return len(shape) <= len(full_shape) and all(n in (1, full) for n, full in axes)
