"""Schedules: options of a recipe that change over training time.

Parts take numbers, never schedules: `build` evaluates schedules at the current step,
inside the compiled program, and passes the values to the factories.

Let t be the environment steps of one seed (with `per: episode`, its finished episodes)
and x = min(t / over, 1). A recipe may write

    {from: a, to: b, over: 20_000}               linear: a (1 - x) + b x
    {from: a, to: b, over: 20%}                  the same, over 20 % of `train.steps`
    {name: cosine, from: a, to: b, over: 20%}    b + (a - b) (1 + cos πx) / 2
    {name: exponential, from: a, rate: r}        a exp(-r t)
    {name: inverse, from: a, rate: r}            a / (1 + r t)
    {steps: [[0, a], [1_000_000, b]]}            a, and b from t = 1 000 000 on

or a value that follows success, from a towards b by s whenever the average of about
ten episodes that have begun and ended since the last change is above g:

    {from: a, to: b, when: {metric: return, above: g, step: s}}

A step of the environments and its action see the time before the step. An update sees
the time at which its unroll began: 8 updates from 1 to 0 see 1, 7/8, … 1/8. The
successes that an update sees include those of its unroll. Only training counts them:
elsewhere the value is b, so that an evaluation, or a film, is of the task that the
curriculum leads to.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import typing
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from rlcli.errors import RlcliError, quote, suggest
from rlcli.xla.numeric_limits import is_float32

if typing.TYPE_CHECKING:
    from rlcli.types import Array, Clock

KEYS: Mapping[str, tuple[str, ...]] = {  # the options of each schedule
    "linear": ("from", "to", "over"),
    "cosine": ("from", "to", "over"),
    "exponential": ("from", "rate"),
    "inverse": ("from", "rate"),
    "steps": ("steps",),
    "success": ("from", "to", "when"),
}


_LEAST = 1e-30  # to which a value decays that never reaches 0

FIELDS: Mapping[str, str] = {  # option -> field of a `Schedule`
    "from": "start",
    "to": "end",
    "over": "over",
    "rate": "rate",
}


class Success(NamedTuple):
    """A condition on the episodes of a run, and how far a value moves when it holds."""

    metric: str  # `return`, `length`, or what episodes log of `info`
    above: float
    step: float

    @property
    def key(self) -> str:
        """The name of the condition, which several schedules may have."""
        return f"{self.metric} > {self.above!r}"


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A number over time, as the recipe defines it; unused fields keep defaults."""

    name: str  # one of KEYS
    start: float = 0.0  # `from`
    end: float = 0.0  # `to`
    over: float = 100.0
    percent: bool = True  # whether `over` is a percentage of `train.steps`
    rate: float = 0.0
    milestones: tuple[tuple[float, float], ...] = ()  # of `steps`: (t, value)
    per: Literal["step", "episode"] = "step"
    when: Success | None = None  # of `success`

    def limits(self) -> tuple[float, ...]:
        """Returns the extreme values: every value lies between them."""
        if self.name == "steps":
            return tuple(value for _, value in self.milestones)
        if self.name in ("linear", "cosine", "success"):
            return self.start, self.end
        # The value approaches zero but does not reach it.
        return self.start, math.nextafter(0.0, self.start) if self.rate else self.start


def parse_schedule(value: Mapping[str, Any]) -> Schedule:
    """Parses a mapping of a recipe."""
    names = {"steps": "steps", "when": "success"}  # known by their keys
    default = next((names[key] for key in names if key in value), "linear")
    name = value.get("name", default)
    if not isinstance(name, str) or name not in KEYS:
        hint = suggest(str(name), KEYS)
        raise RlcliError(f"there is no schedule {quote(name)}", hint)
    keys = (*KEYS[name], "name", *(["per"] if name != "success" else []))
    for key in value:
        if key not in keys:
            message = f"schedule `{name}` has no option {quote(key)}"
            raise RlcliError(message, suggest(key, keys))
    for key in KEYS[name]:
        if key not in value and key != "over":
            hint = f"`{name}` takes {', '.join(f'`{each}`' for each in KEYS[name])}"
            raise RlcliError(f"schedule `{name}` has no `{key}`", hint)
    per = value.get("per", "step")
    if per not in ("step", "episode"):
        raise RlcliError(f"`per` must be `step` or `episode`, got {quote(per)}")
    if name == "steps":
        return Schedule(name, milestones=_parse_milestones(value["steps"]), per=per)
    start, end, rate = (
        _parse_number(value.get(key, 0.0), f"`{key}` of a schedule must be a number")
        for key in ("from", "to", "rate")
    )
    if name == "success":
        return Schedule(name, start, end, when=_parse_success(value["when"]))
    if "rate" in KEYS[name]:
        if rate < 0:
            got = quote(value["rate"])
            raise RlcliError(f"`rate` of a schedule must be ≥ 0, got {got}")
        return Schedule(name, start, rate=rate, per=per)
    span, percent = _parse_over(value.get("over", "100%"))
    if percent and per == "episode":
        hint = "such as `over: 500`; the number of episodes is not known in advance"
        message = "a schedule with `per: episode` needs `over` in episodes"
        raise RlcliError(message, hint)
    return Schedule(name, start, end, span, percent, per=per)


def schedule_value(schedule: Schedule, clock: Clock, total_steps: int) -> Array:
    """Evaluates the schedule at `clock`; a float32 scalar. Pure and traceable.

    `total_steps` is `train.steps`, the reference of `over` in percent.
    """
    import numpy as np  # here, as JAX: recipes are read without them

    if schedule.when is not None:
        return _after_successes(schedule, schedule.when, clock)
    time = clock.steps if schedule.per == "step" else clock.episodes
    if isinstance(time, np.ndarray) and isinstance(schedule.start, float | int):
        # At the start of a run, where JAX would compile each operation.
        return np.asarray(_evaluate(schedule, time, total_steps, np))
    import jax.numpy as jnp

    return _evaluate(schedule, jnp.asarray(time, jnp.float32), total_steps, jnp)


def _evaluate(schedule: Schedule, t: Array, total_steps: int, xp: Any) -> Any:
    """The value at time `t`, computed by `xp`: `jax.numpy` or NumPy."""
    start, end = xp.float32(schedule.start), xp.float32(schedule.end)
    if schedule.name in ("exponential", "inverse"):
        is_inverse, exponent = schedule.name == "inverse", schedule.rate * t
        value = start / (1.0 + exponent) if is_inverse else start * xp.exp(-exponent)
        # An option that has to be > 0 would leave its range at 0, and what is divided
        # by a smaller one would overflow.
        least = xp.minimum(xp.abs(start), _LEAST)
        return xp.sign(start) * xp.maximum(xp.abs(value), least)
    if schedule.name == "steps":
        value = xp.float32(schedule.milestones[0][1])
        for begin, milestone in schedule.milestones[1:]:
            value = xp.where(t >= begin, xp.float32(milestone), value)
        return value
    x = xp.minimum(t / schedule_in_steps(schedule, total_steps).over, 1.0)
    if schedule.name == "cosine":
        x = 0.5 - 0.5 * xp.cos(xp.pi * x)
    # Not start + (end - start) x, which misses `end` by a rounding error at x = 1.
    return start * (1.0 - x) + end * x


def _after_successes(schedule: Schedule, when: Success, clock: Clock) -> Array:
    """The value after the successes so far; `to` where none are counted."""
    import numpy as np

    start, end = np.float32(schedule.start), np.float32(schedule.end)
    count = clock.successes.get(when.key)
    if count is None:
        return np.asarray(end)
    import jax.numpy as jnp

    moved = jnp.float32(count) * np.float32(math.copysign(when.step, end - start))
    is_there = jnp.abs(moved) >= abs(end - start)
    return jnp.where(is_there, end, start + moved)


def schedule_in_steps(schedule: Schedule, total_steps: int) -> Schedule:
    """The schedule with `over` in steps (or episodes), not in percent."""
    if not schedule.percent:
        return schedule
    over = schedule.over / 100.0 * total_steps
    return dataclasses.replace(schedule, over=over, percent=False)


def evaluate_options(options: Any, clock: Clock, total_steps: int) -> Any:
    """Returns a copy of nested options with each schedule replaced by its value."""
    if isinstance(options, Schedule):
        return schedule_value(options, clock, total_steps)
    if isinstance(options, Mapping):
        return {
            key: evaluate_options(option, clock, total_steps)
            for key, option in options.items()
        }
    if isinstance(options, list | tuple):
        return type(options)(
            [evaluate_options(option, clock, total_steps) for option in options]
        )
    return options


def schedule_to_plain(schedule: Schedule) -> dict[str, Any]:
    """Returns the schedule as plain recipe data, with all defaults."""
    span = _shorten(schedule.over)
    values = {
        "from": schedule.start,
        "to": schedule.end,
        "over": f"{span}%" if schedule.percent else span,
        "rate": schedule.rate,
        "steps": [[_shorten(t), value] for t, value in schedule.milestones],
        "when": schedule.when and schedule.when._asdict(),
    }
    used = {key: values[key] for key in KEYS[schedule.name]}
    per = {} if schedule.when else {"per": schedule.per}
    return {"name": schedule.name, **used, **per}


def _parse_number(value: Any, expected: str) -> float:
    """The value as a float; else an error that begins with what is `expected`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and is_float32(value):
        return float(value)
    if is_number and (isinstance(value, int) or math.isfinite(value)):
        expected = f"{expected} that float32 can represent"
    raise RlcliError(f"{expected}, got {quote(value)}")


def _shorten(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _parse_success(value: Any) -> Success:
    hint = "such as `when: {metric: return, above: 400, step: 0.1}`"
    if not isinstance(value, Mapping):
        raise RlcliError("`when` of a schedule must be a mapping", hint)
    for key in (*value, *Success._fields):
        if key not in Success._fields:
            message = f"`when` of a schedule has no option {quote(key)}"
            raise RlcliError(message, suggest(str(key), Success._fields))
        if key not in value:
            raise RlcliError(f"`when` of a schedule has no `{key}`", hint)
    if not isinstance(value["metric"], str):
        hint = "`return`, `length` or one in `info`"
        raise RlcliError("`metric` in `when` must be a name", hint)
    above, step = (
        _parse_number(value[key], f"`{key}` in `when` must be a number")
        for key in ("above", "step")
    )
    if step <= 0:
        hint = "it leads from `from` towards `to`"
        raise RlcliError("`step` in `when` must be > 0", hint)
    return Success(value["metric"], above, step)


def _parse_over(value: Any) -> tuple[float, bool]:
    """The time of `over`, and whether it is a percentage."""
    percent = isinstance(value, str) and value.endswith("%")
    try:
        number = _parse_number(float(value[:-1]) if percent else value, "")
    except (ValueError, RlcliError):
        number = math.nan
    # Of at least one step.
    is_share = number <= 100 and is_float32(number / 100) if percent else True
    if not (number > 0 and is_share):
        hint = (
            "a number of steps such as 20_000, or a share of `train.steps` up to 100%"
        )
        message = "`over` of a schedule must be > 0, in steps or percent"
        raise RlcliError(message, hint)
    return number, percent


def _parse_milestones(value: Any) -> tuple[tuple[float, float], ...]:
    hint = "such as `steps: [[0, 1.0], [1_000_000, 0.1]]`"
    if not isinstance(value, list | tuple) or not value:
        message = "`steps` of a schedule must be a list of pairs [step, value]"
        raise RlcliError(message, hint)
    milestones: list[tuple[float, float]] = []
    for pair in value:
        expected = "`steps` of a schedule must contain pairs"
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise RlcliError(f"{expected} [step, value], got {quote(pair)}", hint)
        t, number = (_parse_number(each, f"{expected} of numbers") for each in pair)
        milestones.append((t, number))
    times = [t for t, _ in milestones]
    if times[0] != 0:
        message = f"`steps` of a schedule must begin at step 0, got {times[0]:g}"
        raise RlcliError(message, hint)
    if any(time >= next_time for time, next_time in itertools.pairwise(times)):
        message = "the step numbers in `steps` of a schedule must increase"
        raise RlcliError(message, hint)
    return tuple(milestones)


class RandomNumber(NamedTuple):
    """The distribution from which each episode draws a number of its environment."""

    distribution: Literal["uniform", "log_uniform", "choice"]
    numbers: tuple[float, ...]  # the bounds of the range, or the values of a `choice`

    def quantile(self, share: Any, xp: Any = None) -> Any:
        """The quantile of a share in [0, 1], float32; `xp` is JAX's NumPy, by
        default NumPy.

        The quantile of a uniform random number has this distribution.
        """
        import numpy as np  # here: recipes are read without it

        xp = np if xp is None else xp
        numbers = np.asarray(self.numbers, np.float32)
        if self.distribution == "choice":
            limits = np.arange(1, len(numbers) + 1) / len(numbers)
            conditions = [share < np.float32(limit) for limit in limits]
            return xp.select(conditions, list(numbers), numbers[-1])
        low, high = numbers
        if self.distribution == "log_uniform":
            value = xp.exp((1 - share) * np.log(low) + share * np.log(high))
        else:
            value = (1 - share) * low + share * high
        return xp.clip(value, low, high).astype(np.float32)
