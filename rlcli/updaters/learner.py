"""Learners: the gradient step and target update that updaters share.

Losses are sums of terms `[T, B]`. A `Term` declares whether the weights of a replay
scale it: they scale the losses of critics, and only mask those of policies. Metrics
with one value per row (`row_metrics`) are averaged over rows of weight > 0, and are
separate from scalar `metrics`.

Functions that learn from each other are updated in turn (`learner` with `turns`). A
group of parameters may have an optimizer without being a network: the temperature.

Estimates for tracers that sample, such as SAC's actions, REDQ's pair of critics or a
model's outcomes, get a key of their own in each update (`Updater.estimate`). Without a
key a model samples with a fixed seed: only policies that do not explore do.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, NamedTuple, TypedDict

import chex
import jax
import jax.numpy as jnp
import optax
from annotated_types import Gt, Le
from jaxtyping import Bool, Float, Int32, Shaped

from rlcli.errors import RlcliError
from rlcli.types import Array, ArrayTree, Clock, Count, Key, Params, PerRow
from rlcli.xla import taps
from rlcli.xla.control_flow import tree_select, update_if
from rlcli.xla.data_axis import axis_size, mean_over_devices, sum_over_devices
from rlcli.xla.debugging import check_finite, is_debugging, locate

NOT_FAILED = -1  # the value of `Learner.failed` while all losses are finite


class Target(TypedDict, total=False):
    """The target update: a copy after `every` n updates, or Polyak averaging."""

    every: Count
    polyak: Annotated[float, Gt(0.0), Le(1.0)]


POLYAK_TARGET: Target = {"polyak": 0.005}  # the default of updaters that need one


class Learner(NamedTuple):
    """The state of gradient-based learning."""

    params: Params
    target: ArrayTree  # target parameters; () without a target
    optimizer: ArrayTree
    failed: Int32[Array, ""]  # the update whose loss was not finite, or `NOT_FAILED`
    # The parameters at the start of the run, of groups that a loss refers to.
    initial: ArrayTree = ()


@dataclasses.dataclass(frozen=True)
class Term:
    """A term of a loss."""

    value: PerRow
    # True: the weights of a replay scale the term, as the importance weights of a
    # prioritized replay scale a TD loss. False: they only mask it, so that rows of
    # weight 0 do not count.
    is_weighted: bool
    name: str = "loss"  # as `rlcli inspect` and errors call it


jax.tree_util.register_dataclass(
    Term, data_fields=["value"], meta_fields=["is_weighted", "name"]
)


class Losses(NamedTuple):
    """The result of a loss function."""

    terms: Sequence[Term]  # the loss is their sum
    priority: Float[Array, "*T B"]  # of the rows in the replay, see `Report`
    # One value per row, logged as the mean over rows of weight > 0.
    row_metrics: Mapping[str, Shaped[Array, "... T B"]]
    metrics: Mapping[str, Float[Array, ""]] = {}
    # Updated running statistics of networks, by group (`Network.learn`): they replace
    # those in the parameters if the gradient step is taken.
    statistics: Mapping[str, ArrayTree] = {}
    # What the terms are computed from, such as targets and advantages, one value per
    # row; only `rlcli inspect` reads them.
    inputs: Mapping[str, Shaped[Array, "... T B"]] = {}


def target_update(
    target: Target | None,
) -> Callable[[Params, ArrayTree, Array], ArrayTree]:
    """Returns the target update as a function `(params, target, updates) -> target`.

    `updates` is the number of updates finished, including the current one.
    """
    if target is None:
        return lambda params, old, updates: old
    if len(target) != 1:
        has = "has both `every` and" if target else "has neither `every` nor"
        raise RlcliError(f"`target` {has} `polyak`", "set either `every` or `polyak`")
    if "polyak" in target:
        rate = target["polyak"]
        return lambda params, old, updates: optax.incremental_update(params, old, rate)
    period = target.get("every", 1)

    def copy_params(params: Params, old: ArrayTree, updates: Array) -> ArrayTree:
        return update_if(updates % period == 0, lambda _, __: params, old)

    return copy_params


def learner(
    init_params: Callable[[Key], Params],
    optimizer: optax.GradientTransformation,
    target: Target | None = None,
    initial: Sequence[str] = (),
    *,
    turns: Sequence[Sequence[str]] = (),
    target_groups: Sequence[str] = (),
    delay: int = 1,
    delays_target: bool = True,
) -> tuple[Callable, Callable]:
    """Gradient-based learning: returns the functions `init` and `step`.

    `init(key) -> Learner` and `step(learner, loss, weight, clock) -> learner,
    priority, metrics`. `loss(params)` returns `Losses`. `initial` are the groups of
    `Learner.initial`.

    With `turns`, groups of parameters alternate, such as critic and policy, and `step`
    takes a loss for each turn. Each turn is a gradient step on its own loss. It changes
    only its groups, `turns[i]`, and uses the parameters that earlier turns have
    updated. The first turn is taken in every update. The other turns, and then the
    target update of `target_groups`, are taken once every `delay` updates (Fujimoto et
    al., 2018, https://arxiv.org/abs/1802.09477). Without `delays_target`, the target is
    updated in every update. Groups without parameters are ignored.
    """
    update_target = target_update(target)

    def init(key: Key) -> Learner:
        params = init_params(key)
        opt_states = tuple(
            optimizer.init(select_groups(params, groups)) for groups in turns
        )
        return Learner(
            params,
            _copy_groups(params, target_groups or params) if target is not None else (),
            opt_states if turns else optimizer.init(params),
            jnp.int32(NOT_FAILED),
            _copy_groups(params, initial),
        )

    def step(
        state: Learner,
        losses: Callable[[Params], Losses] | Sequence[Callable[[Params], Losses]],
        weight: PerRow,
        clock: Clock,
    ) -> tuple[Learner, Float[Array, "..."], dict[str, Float[Array, ""]]]:
        """Gradient steps on the weighted means of losses: state, priority, metrics.

        Each loss is a function of all parameters. Priority, loss and gradient norm are
        those of the first turn. If a loss is not finite, this step and all later ones
        are skipped: the parameters stay at the last finite step, and `failed` records
        the update.
        """
        losses_by_turn = [losses] if callable(losses) else losses

        def turn(index: int, before: Learner) -> tuple[Learner, _GradientStep]:
            params, opt_states = before.params, before.optimizer
            gradient_step = _gradient_step(
                optimizer,
                lambda group_params: losses_by_turn[index]({**params, **group_params}),
                weight,
                clock.updates,
                (
                    select_groups(params, turns[index] if turns else params),
                    opt_states[index] if turns else opt_states,
                    before.failed,
                ),
            )
            group_params, opt_state, failed = gradient_step.state
            new = gradient_step.losses.statistics
            statistics = tree_select(
                gradient_step.is_applied, new, select_groups(params, [*new])
            )
            if turns:
                opt_state = (*opt_states[:index], opt_state, *opt_states[index + 1 :])
            after = before._replace(
                params={**params, **group_params, **statistics},
                optimizer=opt_state,
                failed=failed,
            )
            return after, gradient_step

        def later_turns(_, before: Learner) -> Learner:
            for index in range(1, len(turns)):
                before = turn(index, before)[0]
            if not delays_target:
                return before
            return move_target(before, (clock.updates + 1) // delay)

        def move_target(before: Learner, target_updates: Array) -> Learner:
            groups = select_groups(before.params, target_groups or before.params)
            return before._replace(
                target=update_target(groups, before.target, target_updates)
            )

        state, first = turn(0, state)
        if not delays_target:
            state = move_target(state, clock.updates + 1)
        if delay == 1:
            state = later_turns(0, state)
        else:
            is_due = (clock.updates + 1) % delay == 0
            state = update_if(is_due, later_turns, state)

        def report() -> dict[str, Array]:
            # Evaluated again, because the later turns may not have been due.
            later = (
                _mean_metrics(loss(state.params), weight) for loss in losses_by_turn[1:]
            )
            return functools.reduce(operator.or_, later, first.report())

        metrics = _metrics_if_requested(clock.compute_metrics, report)
        return state, first.losses.priority, metrics

    return init, step


def _copy_groups(params: Params, groups: Collection[str]) -> ArrayTree:
    """Copies of groups, because a buffer cannot be donated twice; () of none."""
    return jax.tree.map(jnp.copy, select_groups(params, groups)) if groups else ()


def select_groups(params: Params, groups: Collection[str]) -> Params:
    """The groups among these that the parameters have."""
    return {name: params[name] for name in groups if name in params}


class GradientStepRecord(NamedTuple):
    """A gradient step, as `xla.taps` collects it."""

    params: Params  # before the step, of the groups that it changes
    gradient: Params
    change: Params  # which the optimizer makes of the gradient
    loss: Float[Array, ""]
    losses: Losses
    weight: PerRow


class _GradientStep(NamedTuple):
    """The result of a gradient step."""

    # Parameters, optimizer state, failed.
    state: tuple[Params, ArrayTree, Int32[Array, ""]]
    losses: Losses
    is_applied: Bool[Array, ""]  # false if this loss, or an earlier one, was not finite
    report: Callable[[], dict[str, Array]]


def _gradient_step(
    optimizer: optax.GradientTransformation,
    loss: Callable[[Params], Losses],
    weight: PerRow,
    updates: Int32[Array, ""],
    state: tuple[Params, ArrayTree, Int32[Array, ""]],
) -> _GradientStep:
    """One gradient step on the weighted mean of `loss`, if that is finite.

    The gradient is averaged over the devices (`xla.data_axis`) before the optimizer
    gets it, so the optimizer clips the same gradient as on a single device.
    """
    params, opt_state, failed = state
    if is_debugging():
        _check_terms(loss, weight, params)

    def total(params: Params) -> tuple[Float[Array, ""], Losses]:
        losses = loss(params)
        chex.assert_equal_shape([weight, *(term.value for term in losses.terms)])
        terms = [_term_mean(term, weight) for term in losses.terms]
        return functools.reduce(operator.add, terms), losses

    (value, losses), gradient = jax.value_and_grad(total, has_aux=True)(params)
    value, gradient = mean_over_devices((value, gradient))
    change, opt_state = optimizer.update(gradient, opt_state, params)
    is_finite = jnp.isfinite(value)
    is_applied = is_finite & (failed == NOT_FAILED)
    failed = jnp.where((failed == NOT_FAILED) & ~is_finite, updates, failed)
    # Only the change of the parameters is masked: the optimizer state of a failed
    # learner is never used again.
    change = jax.tree.map(lambda leaf: jnp.where(is_applied, leaf, 0), change)
    taps.tap(
        taps.GRADIENT_STEP,
        lambda: GradientStepRecord(params, gradient, change, value, losses, weight),
    )

    def report() -> dict[str, Array]:
        means = _mean_metrics(losses, weight)
        norm = optax.tree.norm(gradient)
        return {"loss": value, **means, "gradient_norm": norm}

    return _GradientStep(
        (optax.apply_updates(params, change), opt_state, failed),
        losses,
        is_applied,
        report,
    )


def _check_terms(
    loss: Callable[[Params], Losses], weight: PerRow, params: Params
) -> None:
    """Raises a `FloatingPointError` that names a term that is not finite.

    Checks the terms, and then the gradient of each.
    """
    groups = ", ".join(params)
    with locate(f"the loss of `{groups}`"):
        terms = loss(params).terms
        for index, term in enumerate(terms):
            place = f"the term `{term.name}`"
            check_finite(place, jnp.where(weight > 0, term.value, 0.0))
            with locate(f"the gradient of {place}"):
                gradient = jax.grad(
                    lambda params, index=index: _term_mean(
                        loss(params).terms[index], weight
                    )
                )(params)
                check_finite(f"the gradient of {place}", gradient)


def _term_mean(term: Term, weight: PerRow) -> Float[Array, ""]:
    """The mean of a term, with the weights of a replay or only masked by them.

    It is the weighted sum divided by the number of rows of weight > 0. On several
    devices, each result is a share: the mean of the results over the devices is the
    weighted mean over all rows.
    """
    weights = weight if term.is_weighted else jnp.sign(weight)
    num_rows = jnp.maximum(sum_over_devices(jnp.sum(weights > 0)), 1)
    if (devices := axis_size()) > 1:
        num_rows = num_rows / devices
    return jnp.sum(term.value * weights) / num_rows


def _mean_metrics(losses: Losses, weight: PerRow) -> dict[str, Array]:
    """All metrics as scalars."""
    means = {
        name: masked_mean(metric, weight) for name, metric in losses.row_metrics.items()
    }
    return {**means, **losses.metrics}


def _metrics_if_requested(
    compute_metrics: Bool[Array, ""], report: Callable
) -> dict[str, Array]:
    """The metrics of `report` if requested, else zeros.

    Computing their means takes 10% of a small update.
    """
    names = sorted(jax.eval_shape(report))

    def numbers() -> Array:
        metrics = report()
        return jnp.stack([metrics[name] for name in names])

    zeros = jnp.zeros(len(names))  # one array: separate scalars would cost a write each
    values = jax.lax.cond(compute_metrics, numbers, lambda: zeros)
    return dict(zip(names, values, strict=True))


def masked_mean(
    values: Shaped[Array, "..."], weight: PerRow, axis: int | None = None
) -> Float[Array, "..."]:
    """The mean over rows of weight > 0; 0 if there are none.

    Without `axis` it is the mean over the rows of all devices (`xla.data_axis`).
    """
    mask = jnp.broadcast_to(weight > 0, values.shape)
    num_rows = jnp.sum(mask, axis=axis)
    total = jnp.sum(values, where=mask, axis=axis)
    if axis is None:
        num_rows, total = sum_over_devices((num_rows, total))
    return total / jnp.maximum(num_rows, 1)
