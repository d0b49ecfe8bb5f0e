"""Space: the options that a sweep searches, and their distributions.

    optimizer.learning_rate: {log_uniform: [1e-5, 1e-2]}
    tracer.gamma: {uniform: [0.9, 0.999]}
    updater.epochs: {int: [1, 10]}
    replay: {choice: [uniform, prioritized]}
    replay.alpha: {uniform: [0.4, 0.8], when: {replay: prioritized}}

Imports neither JAX nor Optuna.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from rlcli.errors import RlcliError, quote, suggest
from rlcli.recipe import Recipe, RecipeDocument, documents, load_recipe
from rlcli.recipe.documents import Document
from rlcli.recipe.settings import LONGEST
from rlcli.recipe.varying import MOST_COMBINATIONS, check_count

CHOICE = "choice"
KINDS = ("log_uniform", "uniform", "int", CHOICE)
EXAMPLE = "for example `optimizer.learning_rate: {log_uniform: [1e-5, 1e-2]}`"
_FIELDS: Mapping[str, tuple[str, ...]] = {  # beside the distribution and `when`
    "log_uniform": ("points",),
    "uniform": ("points",),
    "int": ("log", "step", "points"),
    CHOICE: (),
}
_CONTROLLED: Mapping[str, str] = {  # what a sweep decides itself
    "train.seed": "the seeds of a sweep are `--seed` and `--seeds`",
    "train.seeds": "the seeds of a sweep are `--seed` and `--seeds`",
    "train.evaluate": "all trials need the same evaluations: use `--set`",
    "extends": "sweep each recipe separately, or search the options that differ",
    "extra": "rlcli does not read this section",
}
_MANY = "use fewer values, or `--sampler random`"  # the hint of a large grid
_LARGEST_INT = 2**53  # of those that a float has exactly

Values = dict[str, Any]  # the value of each active option; of a choice its label


@dataclass(frozen=True)
class Option:
    """An option of the recipe and its distribution.

    `choices` are labels: the values as YAML in one line. `when` are the labels that
    other choices need for this option to be part of a trial.
    """

    key: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    step: int = 1
    log: bool = False
    points: int | None = None  # of a grid
    choices: tuple[str, ...] = ()
    when: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def is_active(self, values: Mapping[str, Any]) -> bool:
        """Whether the options before it make this one part of the trial."""
        return all(values.get(key) in labels for key, labels in self.when)

    def edges(self) -> list[Any]:
        """The lowest and the highest value, or all choices."""
        if self.kind == CHOICE:
            return [*self.choices]
        ends = (int(self.low), int(self.high)) if self.kind == "int" else ()
        return [*dict.fromkeys(ends or (self.low, self.high))]

    def draw(self, random: Random) -> Any:
        """A random value of the distribution."""
        if self.kind == CHOICE:
            return random.choice(self.choices)
        if self.kind == "int" and not self.log:
            return int(self.low) + self.step * random.randrange(self.count)
        return self.from_share(random.random())

    @property
    def count(self) -> int:
        """The number of the whole numbers of an `int`."""
        return int(self.high - self.low) // self.step + 1

    @property
    def is_log(self) -> bool:
        """Whether values are equally likely at equal ratios."""
        return self.log or self.kind == "log_uniform"

    def contains(self, value: Any) -> bool:
        """Whether a value is one that the distribution has."""
        if self.kind == CHOICE:
            return value in self.choices
        if not _is_number(value) or not self.low <= value <= self.high:
            return False
        return self.kind != "int" or float(value).is_integer()

    def to_share(self, value: float) -> float:
        """The place of a number in the range, from 0 to 1; see `from_share`."""
        low, high = self._ends
        if self.is_log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    def from_share(self, share: float) -> int | float:
        """The number at a share of the range.

        The first and the last whole number have as large a share as the others.
        """
        value = _interpolate(*self._ends, share, self.is_log)
        return value if self.kind != "int" else self._nearest(value)

    def _nearest(self, value: float) -> int:
        """The nearest whole number of the range, in steps."""
        step = round((value - self.low) / self.step)
        return int(self.low) + self.step * min(max(step, 0), self.count - 1)

    @property
    def _ends(self) -> tuple[float, float]:
        half = self.step / 2 if self.kind == "int" else 0.0
        return self.low - half, self.high + half

    def grid(self) -> list[Any]:
        """The values of a grid; an `RlcliError` if there are infinitely many."""
        if self.kind == CHOICE:
            return [*self.choices]
        if self.kind == "int" and self.points is None and not self.log:
            check_count(self.count, hint=_MANY)
            return [*range(int(self.low), int(self.high) + 1, self.step)]
        if self.points is None:
            raise RlcliError(
                f"a grid needs the number of values of `{self.key}`",
                f"write `points`: `{self.key}: {{{self.kind}: [{self.low:g}, "
                f"{self.high:g}], points: 5}}`",
            )
        check_count(self.points, hint=_MANY)
        values = self.spread(self.points)
        if self.kind == "int":
            return [*dict.fromkeys(self._nearest(round(value)) for value in values)]
        return values

    def spread(self, points: int) -> list[float]:
        """`points` numbers of the range, equally spaced (in log if `is_log`)."""
        shares = [index / (points - 1) for index in range(points)]
        return [_interpolate(self.low, self.high, each, self.is_log) for each in shares]


@dataclass(frozen=True)
class Space:
    """The options of a space in their order; each may depend on those before it."""

    options: tuple[Option, ...]
    document: Document

    def __getitem__(self, key: str) -> Option:
        return next(option for option in self.options if option.key == key)

    def draw(self, seed: int, trial: int) -> Values:
        """The values of a random trial, which depend on the seed and its number only.

        Each option has random numbers of its own: another option in the space does not
        change the values of this one.
        """
        return self.fill(
            lambda option: option.draw(Random(f"{seed}/{trial}/{option.key}"))
        )

    def fill(self, choose: Callable[[Option], Any]) -> Values:
        """The values that a function chooses for the options that are active."""
        values: Values = {}
        for option in self.options:
            if option.is_active(values):
                values[option.key] = choose(option)
        return values

    def settings(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The settings `KEY=VALUE` of a trial, in the order of the options."""
        return tuple(
            f"{option.key}={values[option.key]}"
            for option in self.options
            if option.key in values
        )

    def complete(self, values: Mapping[str, Any]) -> Values:
        """These values, and the lowest, or first choice, of other active options."""
        return self.fill(lambda option: values.get(option.key, option.edges()[0]))

    def requirements(self, option: Option) -> Values:
        """Values of other options with which an option is active."""
        values: Values = {}
        for key, labels in option.when:
            values |= self.requirements(self[key])
            values[key] = labels[0]
        return values

    def grid(self) -> list[Values]:
        """Every combination of the values of a grid."""
        combinations = [
            *itertools.islice(self._combinations(0, {}), MOST_COMBINATIONS + 1)
        ]
        check_count(len(combinations), hint=_MANY)
        return combinations

    def _combinations(self, index: int, values: Values) -> Iterator[Values]:
        if index == len(self.options):
            yield dict(values)
            return
        option = self.options[index]
        if not option.is_active(values):
            yield from self._combinations(index + 1, values)
            return
        for value in option.grid():
            yield from self._combinations(index + 1, values | {option.key: value})


def load_space(space: str | Path | Mapping[str, Any]) -> Space:
    """Reads a space from a file, or from data; refuses unknown distributions."""
    if isinstance(space, Mapping):
        document = documents.from_mapping(space)
    else:
        document = documents.load_document(Path(space), example=EXAMPLE)
    return read_space(document)


def read_space(document: Document) -> Space:
    """The space of a document."""
    if not document.data:
        raise RlcliError(f"{document.where()}the space is empty", EXAMPLE)
    options: dict[str, Option] = {}
    for key, value in document.data.items():
        options[key] = _Reader(document, key, options).read(value)
    return Space(tuple(options.values()), document)


class _Reader:
    """Reads the distribution of one option; `before` are the options before it."""

    def __init__(
        self, document: Document, key: str, before: Mapping[str, Option]
    ) -> None:
        self.document = document
        self.key = key
        self.before = before

    def fail(self, message: str, hint: str = EXAMPLE, *place: str) -> NoReturn:
        where = self.document.where((self.key, *place))
        raise RlcliError(f"{where}{message}", hint)

    def refuse(self, name: str, expected: str, value: Any, hint: str = "") -> NoReturn:
        """The error that an entry of the distribution has another value."""
        message = f"`{name}` of {quote(self.key)}: expected {expected}"
        self.fail(f"{message}, got {_format(value)}", hint, name)

    def read(self, value: Any) -> Option:
        """The option; an error if its distribution is wrong."""
        self.check_key()
        if not isinstance(value, Mapping):
            self.fail(f"{quote(self.key)} has no distribution: {_format(value)}")
        kinds = [name for name in value if name in KINDS]
        if not kinds:
            self.fail_without_kind(value)
        if len(kinds) > 1:
            names = " and ".join(f"`{name}`" for name in kinds)
            self.fail(f"{quote(self.key)} has several distributions: {names}")
        (kind,) = kinds
        known = (kind, "when", *_FIELDS[kind])
        for name in value:
            if name not in known:
                message = f"`{kind}` of {quote(self.key)} has no option {quote(name)}"
                self.fail(message, suggest(name, known[1:]), name)
        when = self.read_when(value.get("when", {}))
        if kind == CHOICE:
            choices = self.read_choices(value[kind])
            return Option(self.key, kind, choices=choices, when=when)
        log = value.get("log", False)
        if not isinstance(log, bool):
            self.refuse("log", "true or false", log)
        step = self.read_count("step", value.get("step", 1), 1)
        points = value.get("points")
        if points is not None:
            points = self.read_count("points", points, 2)
        if log and step > 1:
            message = f"{quote(self.key)} has both `log` and `step`"
            self.fail(message, "remove one of the two", "step")
        low, high = self.read_bounds(kind, value[kind], log or kind == "log_uniform")
        if step > 1:
            high = low + (high - low) // step * step  # the highest value
        return Option(self.key, kind, low, high, step, log, points, when=when)

    def check_key(self) -> None:
        """Refuses unknown options, and those that a sweep cannot choose."""
        for name, hint in _CONTROLLED.items():
            if self.key == name or self.key.startswith(f"{name}."):
                self.fail(f"{quote(self.key)} cannot be searched", hint)
        is_stripped = self.key == self.key.strip()
        if not all(self.key.split(".")) or "=" in self.key or not is_stripped:
            self.fail(f"{quote(self.key)} is not the dotted name of an option")

    def fail_without_kind(self, value: Mapping[str, Any]) -> NoReturn:
        name = next(iter(value), "")
        message = f"{quote(self.key)} has no distribution"
        inner = value.get(name)
        if isinstance(inner, Mapping) and any(kind in inner for kind in KINDS):
            self.fail(message, f"write the dotted name: `{self.key}.{name}: …`")
        if name:
            message = f"there is no distribution {quote(name)} ({quote(self.key)})"
        self.fail(message, suggest(name, KINDS), name)

    def read_choices(self, values: Any) -> tuple[str, ...]:
        """The labels of the values."""
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            self.refuse(CHOICE, "a list of values", values, _CHOICE_EXAMPLE)
        labels = [documents.format_inline(value) for value in values]
        for label in labels:
            if labels.count(label) > 1:
                message = f"{quote(label)} is listed twice in {quote(self.key)}"
                self.fail(message, "remove one of them", CHOICE)
        return tuple(labels)

    def read_bounds(self, kind: str, value: Any, is_log: bool) -> tuple[float, float]:
        is_pair = isinstance(value, Sequence) and not isinstance(value, str)
        if not is_pair or len(value) != 2 or not all(map(_is_number, value)):
            self.refuse(kind, "[lowest, highest]", value, EXAMPLE)
        low, high = map(float, value)
        what = f"`{kind}` of {quote(self.key)}"
        if kind == "int" and not (low.is_integer() and high.is_integer()):
            self.refuse(kind, "whole numbers", value, "or use `uniform`")
        if not low < high:
            hint = "write the lowest value first"
            if low == high:
                hint = (
                    f"set a single value: `--set {self.key}={_format(value[0])[1:-1]}`"
                )
            self.fail(f"{what}: {low:g} is not less than {high:g}", hint, kind)
        if is_log and low <= 0:
            hint = "begin above 0, or use `uniform`"
            self.fail(f"{what}: {low:g} has no logarithm", hint, kind)
        is_wide = math.isinf(high / low if is_log else high - low)
        if is_wide or (kind == "int" and max(-low, high) > _LARGEST_INT):
            message = f"{what}: the range from {low:g} to {high:g} is too wide"
            self.fail(message, "search a narrower one", kind)
        return low, high

    def read_count(self, name: str, value: Any, least: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            self.refuse(name, f"int ≥ {least}", value)
        return value

    def read_when(self, value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The condition: labels by the keys of choices before this option."""
        if not isinstance(value, Mapping):
            example = "for example `when: {replay: prioritized}`"
            self.refuse("when", "a mapping", value, example)
        what = f"`when` of {quote(self.key)}"
        conditions = []
        for key, wanted in value.items():
            other = self.before.get(key)
            if other is None:
                message = f"{what}: no option {quote(key)} before it"
                self.fail(message, suggest(key, self.before), "when", key)
            if other.kind != CHOICE:
                message = f"{what}: `{key}` is not a `choice`"
                self.fail(message, "make it a `choice` of values", "when", key)
            format_label = documents.format_inline
            is_label = format_label(wanted) in other.choices
            wanted = wanted if isinstance(wanted, list) and not is_label else [wanted]
            labels = tuple(map(format_label, wanted))
            for label in labels or ("[]",):
                if label not in other.choices:
                    message = f"{what}: `{key}` is never {quote(label)}"
                    self.fail(message, suggest(label, other.choices), "when", key)
            conditions.append((key, labels))
        return tuple(conditions)


_CHOICE_EXAMPLE = "for example `network.layers: {choice: [[64], [64, 64]]}`"


def _format(value: Any) -> str:
    return quote(documents.format_inline(value))


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _interpolate(low: float, high: float, share: float, is_log: bool) -> float:
    """The number at a share of the way from low to high, or of the ratio."""
    if share in (0, 1):
        return high if share else low
    value = low * (high / low) ** share if is_log else low + (high - low) * share
    return min(max(value, low), high)


def check_space(recipe: RecipeDocument, space: Space) -> tuple[Recipe, bool]:
    """Refuses options that the recipe does not have, and values that it refuses.

    Loads the recipe with the lowest and the highest value of each number and with every
    choice, other options at their first values. Returns the recipe without the space,
    and whether any of them imports code or has trackers that contact a host.
    """
    base = load_recipe(recipe)
    needs_trust = _needs_trust(base)
    checked = set()
    for option in space.options:
        for value in option.edges():
            values = space.complete(space.requirements(option) | {option.key: value})
            settings = space.settings(values)
            if settings in checked:
                continue
            checked.add(settings)
            try:
                loaded = load_recipe(recipe, settings)
            except RlcliError as error:
                raise _explain(error, recipe, space, values) from error
            needs_trust |= _needs_trust(loaded)
    return base, needs_trust


def _needs_trust(recipe: Recipe) -> bool:
    return bool(recipe.import_paths or recipe.remote_trackers)


def _explain(
    error: RlcliError, recipe: RecipeDocument, space: Space, values: Values
) -> RlcliError:
    """The error with the line of the space that causes it."""
    settings = {key: f"{key}={value}" for key, value in values.items()}
    for key, setting in settings.items():
        prefix = f"--set {quote(setting, LONGEST)[1:-1]}: "
        if error.message.startswith(prefix):
            where = space.document.where((key,))
            return RlcliError(
                f"{where}{error.message.removeprefix(prefix)}", error.hint
            )
    for key, setting in settings.items():
        try:
            load_recipe(recipe, [setting])
        except RlcliError as alone:
            where = space.document.where((key,))
            message = f"{where}the recipe is wrong with {quote(setting)}"
            return RlcliError(f"{message}: {alone.message}", alone.hint)
    where, listing = space.document.where(), ", ".join(map(quote, settings.values()))
    message = f"{where}the recipe is wrong with {listing}: {error.message}"
    return RlcliError(message, error.hint)
