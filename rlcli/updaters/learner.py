"""Learning: the gradient step that updaters share."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import optax
from annotated_types import Gt, Le

from rlcli.errors import RlcliError
from rlcli.types import Array, ArrayTree, Clock, Count, Params

NOT_FAILED = -1  # of `Learner.failed`: nothing has failed


class Target(TypedDict, total=False):
    """How the target parameters follow: copied every so many updates, or slowly."""

    every: Count
    polyak: Annotated[float, Gt(0.0), Le(1.0)]


class Learner(NamedTuple):
    """What a gradient step changes."""

    params: Params
    target: ArrayTree  # parameters that follow; () where nobody asks for them
    optimizer: ArrayTree
    failed: Array  # int32: the update whose loss was not finite, or GOING


class Losses(NamedTuple):
    """What a loss function returns."""

    terms: Mapping[str, Array]  # `[T, B]` each, summed; weights touch `critic` alone
    priority: Array  # `[B]`
    # Anything: its mean, or of `[..., T, B]` that of the rows that count, is reported.
    metrics: Mapping[str, Array]


def target_update(
    target: Target | None,
) -> Callable[[Params, ArrayTree, Array], ArrayTree]:
    """`(params, target, updates) -> target`, as the option says."""
    if target is None:
        return lambda params, old, updates: old
    if len(target) != 1:
        raise RlcliError(
            f"`target` is {dict(target)}", "give either `every` or `polyak`"
        )
    if "polyak" in target:
        rate = target["polyak"]
        return lambda params, old, updates: optax.incremental_update(params, old, rate)
    period = target.get("every", 1)

    def copy_params(params: Params, old: ArrayTree, updates: Array) -> ArrayTree:
        due = (updates % period == 0).astype(jnp.int32)
        # A loop of 0 or 1 turns: a select would copy all of it at every update.
        return jax.lax.fori_loop(0, due, lambda _, __: params, old)

    return copy_params


def learner(
    init: Callable[[Array], Params],
    optimizer: optax.GradientTransformation,
    target: Target | None = None,
) -> tuple[Callable, Callable]:
    """`begin(key) -> Learner` and `step(learner, loss, weight, clock, …)`."""
    update_target = target_update(target)

    def begin(key: Array) -> Learner:
        params = init(key)
        # Copied: the state is donated, and a buffer cannot be donated twice.
        copy = jax.tree.map(jnp.copy, params) if target is not None else ()
        return Learner(params, copy, optimizer.init(params), jnp.int32(NOT_FAILED))

    def step(
        state: Learner,
        loss: Callable[[Params], Losses],
        weight: Array,
        clock: Clock,
    ) -> tuple[Learner, Array, dict[str, Array]]:
        """One gradient step on the weighted mean of `loss`: state, priority, metrics.

        A step whose loss is not finite is not taken, nor any after it: the parameters
        stay the last good ones, and `failed` says which update it was.
        """
        gradient_step = _gradient_step(
            optimizer,
            loss,
            weight,
            clock.updates,
            (state.params, state.optimizer, state.failed),
        )
        params, moments, failed = gradient_step.state
        target = update_target(params, state.target, clock.updates + 1)
        metrics = _metrics_if_requested(clock.compute_metrics, gradient_step.report)
        new_state = Learner(params, target, moments, failed)
        return new_state, gradient_step.losses.priority, metrics

    return begin, step


def alternating_learner(
    init: Callable[[Array], Params],
    optimizer: optax.GradientTransformation,
    turns: Sequence[Sequence[str]],
    *,
    target: Target | None = None,
    target_groups: Sequence[str] = (),
    delay: int = 1,
) -> tuple[Callable, Callable]:
    """`begin(key) -> Learner` and `step(learner, losses, weight, clock, …)`.

    For functions that learn from each other: a turn is a gradient step on a loss of its
    own that moves the groups of parameters it names, and sees what the turns before it
    have moved. All turns but the first, and then the target, which follows the groups
    `target_groups` alone, are taken in one of `delay` updates (Fujimoto et al., 2018,
    https://arxiv.org/abs/1802.09477). Groups that there are not are passed over.
    """
    update_target = target_update(target)

    def begin(key: Array) -> Learner:
        params = init(key)
        copy = _select_groups(params, target_groups) if target is not None else ()
        moments = tuple(
            optimizer.init(_select_groups(params, groups)) for groups in turns
        )
        # Copied: the state is donated, and a buffer cannot be donated twice.
        copy = jax.tree.map(jnp.copy, copy)
        return Learner(params, copy, moments, jnp.int32(NOT_FAILED))

    def step(
        state: Learner,
        losses: Sequence[Callable[[Params], Losses]],
        weight: Array,
        clock: Clock,
    ) -> tuple[Learner, Array, dict[str, Array]]:
        """The turns, each on a loss of all parameters: state, priority, metrics.

        Priority, loss and norm of the gradient are those of the first. What is not
        finite stops them all, as it stops `learner`.
        """

        def turn(index: int, state_before: Learner) -> tuple[Learner, _GradientStep]:
            params, moments = state_before.params, state_before.optimizer
            gradient_step = _gradient_step(
                optimizer,
                lambda group_params: losses[index]({**params, **group_params}),
                weight,
                clock.updates,
                (
                    _select_groups(params, turns[index]),
                    moments[index],
                    state_before.failed,
                ),
            )
            group_params, mine, failed = gradient_step.state
            moments = (*moments[:index], mine, *moments[index + 1 :])
            return Learner(
                {**params, **group_params}, state_before.target, moments, failed
            ), gradient_step

        def later_turns(_, state_before: Learner) -> Learner:
            for index in range(1, len(turns)):
                state_before = turn(index, state_before)[0]
            moves = (clock.updates + 1) // delay
            group_params = _select_groups(state_before.params, target_groups)
            return state_before._replace(
                target=update_target(group_params, state_before.target, moves)
            )

        state, first = turn(0, state)
        if delay == 1:
            state = later_turns(0, state)
        else:
            due = ((clock.updates + 1) % delay == 0).astype(jnp.int32)
            # A loop of 0 or 1 turns: what goes through a `cond` is copied.
            state = jax.lax.fori_loop(0, due, later_turns, state)

        def report() -> dict[str, Array]:
            # Evaluated for this, since the turn may not have been due.
            metrics = (_mean_metrics(loss(state.params), weight) for loss in losses[1:])
            return functools.reduce(operator.or_, metrics, first.report())

        return (
            state,
            first.losses.priority,
            _metrics_if_requested(clock.compute_metrics, report),
        )

    return begin, step


def _select_groups(params: Params, groups: Sequence[str]) -> Params:
    return {name: params[name] for name in groups if name in params}


class _GradientStep(NamedTuple):
    """A gradient step, and what it was made of."""

    state: tuple[Params, ArrayTree, Array]  # parameters, of the optimizer, failed
    losses: Losses
    report: Callable[[], dict[str, Array]]


def _gradient_step(
    optimizer: optax.GradientTransformation,
    loss: Callable[[Params], Losses],
    weight: Array,
    updates: Array,
    state: tuple[Params, ArrayTree, Array],
) -> _GradientStep:
    """One gradient step on the weighted mean of `loss`, if that is finite."""
    params, moments, failed = state

    def total(params: Params) -> tuple[Array, Losses]:
        losses = loss(params)
        return sum(
            _weighted_mean(term, weight if name == "critic" else jnp.sign(weight))
            for name, term in losses.terms.items()
        ), losses

    (value, losses), gradient = jax.value_and_grad(total, has_aux=True)(params)
    change, moments = optimizer.update(gradient, moments, params)
    is_finite = jnp.isfinite(value)
    is_applied = is_finite & (failed == NOT_FAILED)
    failed = jnp.where((failed == NOT_FAILED) & ~is_finite, updates, failed)
    # The parameters alone are held back: what else has failed will not be used.
    change = jax.tree.map(lambda leaf: jnp.where(is_applied, leaf, 0), change)

    def report() -> dict[str, Array]:
        means = _mean_metrics(losses, weight)
        norm = optax.tree.norm(gradient)
        return {"loss": value, **means, "gradient_norm": norm}

    return _GradientStep(
        (optax.apply_updates(params, change), moments, failed), losses, report
    )


def _mean_metrics(losses: Losses, weight: Array) -> dict[str, Array]:
    """What the metrics come to."""

    def reduce(metric: Array) -> Array:
        of_rows = jnp.shape(metric)[-2:] == weight.shape
        return masked_mean(metric, weight) if of_rows else jnp.mean(metric)

    return {name: reduce(metric) for name, metric in losses.metrics.items()}


def _metrics_if_requested(compute_metrics: Array, report: Callable) -> dict[str, Array]:
    """The report where somebody reads it: reductions are a tenth of a small update."""
    names = sorted(jax.eval_shape(report))

    def numbers() -> Array:
        metrics = report()
        return jnp.stack([metrics[name] for name in names])

    silence = jnp.zeros(len(names))  # one array: each would have to be written
    values = jax.lax.cond(compute_metrics, numbers, lambda: silence)
    return dict(zip(names, values, strict=True))


def masked_mean(values: Array, weight: Array, axis: int | None = None) -> Array:
    """The mean over the rows that count; 0 where none does."""
    counts = jnp.broadcast_to(weight > 0, values.shape)
    rows = jnp.maximum(jnp.sum(counts, axis=axis), 1)
    return jnp.sum(values, where=counts, axis=axis) / rows


def _weighted_mean(term: Array, weight: Array) -> Array:
    """The mean of what the rows that count weigh."""
    rows = jnp.maximum(jnp.sum(weight > 0), 1)
    return jnp.sum(term * weight) / rows
