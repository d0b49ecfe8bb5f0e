"""Grammar: the sections and options of a recipe, and their types.

The signature of a factory is the schema of a part: its keyword-only parameters are the
options, and their annotations convert and validate values. Sections without a factory
are dataclasses here, which are read in the same way.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypedDict, TypeVar

from annotated_types import Ge, Gt, Le, Lt

from rlcli import registry, schedules
from rlcli.errors import RlcliError, quote, shorten, suggest_similar
from rlcli.recipe import documents
from rlcli.recipe.annotations import MismatchError, convert, quote_value
from rlcli.recipe.documents import Place
from rlcli.registry.common_names import suggest_name
from rlcli.registry.option_types import within
from rlcli.xla.numeric_limits import EXACT_MAX, INT32_MAX

SECTIONS = (
    *("environment", "network", "policy", "tracer", "replay", "updater"),
    *("intrinsic_reward", "normalize", "optimizer"),
    *("init", "freeze", "train", "extra", "vary"),
)
PositiveInt = Annotated[int, Ge(1)]
# Steps of all environments together: metrics and checkpoints store them as floats.
Steps = Annotated[int, Ge(1), Le(EXACT_MAX)]
# The bound of a normalized value; a number of the program that schedules cannot change.
ClipLimit = Annotated[float, Gt(0.0), "structural"]
InfoRule = Literal["last", "sum", "mean"]  # as in `rlcli.types`, which imports NumPy
Seed = Annotated[int, Ge(0), Lt(2**31)]
# Each seed has a row of metrics at every log point, and entries in the run's files.
Seeds = Annotated[int, Ge(1), Le(1_000_000)]
EVALUATED_STEPS = 5_000  # shorter runs are not evaluated by default
_EVALUATIONS, _EPISODES = 10, 20
# On the host an evaluation steps its environments as slowly as training does, so that
# by default evaluations have at most this share of the steps, but enough episodes each.
_HOST_SHARE, _FEW_EPISODES = Fraction(1, 10), 5
UNKNOWN_LENGTH = 1_000  # assumed of episodes without a known time limit
T = TypeVar("T")
FailFunction = Callable[[Place, str, str], NoReturn]  # (place, message, hint)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogPeriod:
    """How often to write rows of metrics."""

    every: Steps | None = 1_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
    """How often to evaluate, and over how many episodes; see `default_evaluation`.

    With a `grid`, in environments with all combinations of its values.
    """

    every: Steps | None = None
    episodes: PositiveInt = _EPISODES
    render: bool = False
    grid: dict[str, list[Any]] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """How often to save a checkpoint, and how many to keep."""

    every: Steps | None = 10_000
    keep: PositiveInt = 1


# The numbers of an evaluation at which the run ends, once every seed has reached all of
# them: `return`, or what the environment reports in `info`.
Stop = dict[str, Annotated[float, "structural"]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    """The section `train`; steps and periods count the environment steps of one seed.

    `unroll`, `updates` and `start` have defaults that depend on the other sections.
    """

    steps: Steps = 50_000
    unroll: PositiveInt
    updates: Fraction  # per iteration, on average
    start: Annotated[int, Ge(0), Le(EXACT_MAX)]
    warmup: Literal["random", "policy"] = "policy"
    seed: Seed = 0
    seeds: Seeds = 1
    devices: PositiveInt | Literal["auto"] = "auto"
    data_parallel: PositiveInt = 1
    threads: PositiveInt | Literal["auto"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    reset: bool = False
    log: LogPeriod = LogPeriod()
    evaluate: Evaluate = Evaluate()
    checkpoint: Checkpoint = Checkpoint()
    stop: Stop | None = None
    on_nan: Literal["freeze", "stop"] = "freeze"
    on_error: Literal["stop", "restart"] = "stop"
    trackers: tuple[Any, ...] = ()  # parts, by name or with options
    hooks: tuple[Any, ...] = ()  # the same
    adjustable: tuple[str, ...] = ()  # numbers that hooks set, by their places


@dataclasses.dataclass(frozen=True, kw_only=True)
class Normalize:
    """The section `normalize`: which values are scaled by running statistics."""

    observation: bool = False
    reward: bool = False
    observation_clip: ClipLimit | None = 10.0  # ±, in standard deviations
    reward_clip: ClipLimit | None = 10.0  # of the reward of a step, ±


@dataclasses.dataclass(frozen=True, kw_only=True)
class Init:
    """The section `init`: the run, or file, whose parameters a new run starts from.

    `parts` are parameter groups, or their torsos, as `policy/torso`; a mapping also
    gives their names in the source. None: all groups of the run.
    """

    from_: Annotated[str, "file"]
    seed: Seed | Literal["match"] = "match"
    parts: list[str] | dict[str, str] | None = None
    keep_head: bool = True
    normalization: bool = True
    optimizer: bool = False
    replay: bool | PositiveInt = False  # all its steps, or so many of the newest
    teacher: bool = False  # only the policy that losses compare with the own one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Levels:
    """The levels that episodes play, and how they are chosen.

    Without levels every episode is new. `temperature` and `staleness` are those of
    `regret`.
    """

    count: PositiveInt
    first: Annotated[int, Ge(0)] = 0
    by: Literal["uniform", "regret"] = "uniform"
    temperature: Annotated[float, Gt(0.0), "structural"] = 0.1
    staleness: Annotated[float, Ge(0.0), Le(1.0), "structural"] = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vector:
    """The options that every environment has, in addition to those of its factory."""

    num_envs: PositiveInt = 1
    time_limit: PositiveInt | Literal["default"] | None
    timeout: Annotated[float, Gt(0.0), "structural"] | None = None
    each: dict[str, list[Any] | dict[str, list[Any]]]
    wrappers: list[Any]
    info: dict[str, InfoRule]
    levels: Levels | None = None


# The section `freeze`: parameter groups or their torsos, with the step up to which they
# are frozen, or true: for the whole run.
Freeze = list[str] | dict[str, Steps | Literal[True]]
# The options of the sections without parts, and of all environments.
FIELDS: Mapping[str, type] = {
    "environment": Vector,
    "normalize": Normalize,
    "init": Init,
    "train": Train,
}


class PerStep(TypedDict):
    """Updates per environment step."""

    per_step: Annotated[float, Ge(0.001), "structural"]


class Part(NamedTuple):
    """A part of a recipe: kind, name and all options, by their names in Python."""

    kind: str
    name: str
    options: Mapping[str, Any]  # may contain Schedules

    @property
    def registered(self) -> registry.RegisteredPart:
        """The factory behind the name, and its facts."""
        return registry.find(self.kind, self.name)


class Reader(NamedTuple):
    """Reads the options of one part or section; `label` names it in messages."""

    label: str
    place: Place
    fail: FailFunction

    def options(
        self,
        parameters: Mapping[str, inspect.Parameter],
        options: Mapping[str, Any],
        common: Sequence[str] = (),
    ) -> dict[str, Any]:
        """All options, converted, by their names in Python, with defaults filled in.

        `common` are keys that are read elsewhere; hints may suggest them.
        """
        for key in options:
            if key not in parameters:
                message = f"{self.label} has no option {quote(key)}"
                hint = suggest_name("key", key, (*parameters, *common))
                self.fail((*self.place, key), message, hint)
        return {
            parameter.name: self.option(key, parameter, options)
            for key, parameter in parameters.items()
        }

    def section(self, section: type[T], options: Mapping[str, Any]) -> T:
        """A section without parts, with its options converted."""
        return section(**self.options(registry.options(section), options))

    def option(
        self, key: str, parameter: inspect.Parameter, options: Mapping[str, Any]
    ) -> Any:
        """One option, converted, or its default."""
        value = options.get(key, parameter.default)
        if value is parameter.empty:
            self.fail(self.place, f"{self.label} needs `{key}`", "")
        # Defaults are converted as well, so that a recipe that writes them is equal.
        return self._convert(key, parameter, value)

    def value(self, annotation: Any, value: Any, place: Place) -> Any:
        """A value, converted to its annotation."""
        try:
            return convert(annotation, value)
        except MismatchError as error:
            value_place = (*place, *error.place)
            dotted_key = ".".join(map(str, value_place[len(self.place) :]))
            message = f"{quote(dotted_key)} of {self.label}: {error.message}"
            self.fail(value_place, message, error.hint)

    def _convert(self, key: str, parameter: inspect.Parameter, value: Any) -> Any:
        if value is None and parameter.default is None:
            return None
        place = (*self.place, key)
        section = _dataclass_in(parameter.annotation)
        if section is None:
            return self.value(parameter.annotation, value, place)
        if dataclasses.is_dataclass(value):
            return value
        is_off = value is None or value is False
        if is_off and "every" in registry.options(section):
            value = {"every": None}
        label = f"`{key}` of {self.label}"
        if not isinstance(value, Mapping):
            message = f"{label}: expected a mapping, got {quote_value(value)}"
            known = ", ".join(f"`{option}`" for option in registry.options(section))
            self.fail(place, message, f"its options are {known}")
        inner = Reader(label, place, self.fail)
        return inner.section(section, value)


def to_plain(value: Any) -> Any:
    """Options, parts and sections as plain data, as a recipe writes them."""
    if isinstance(value, schedules.Schedule):
        return schedules.schedule_to_plain(value)
    if isinstance(value, schedules.RandomNumber):
        value = {value.distribution: value.numbers}
    if isinstance(value, Part):
        options = {key.removesuffix("_"): each for key, each in value.options.items()}
        value = {"name": value.name, **options}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        value = {name.removesuffix("_"): getattr(value, name) for name in names}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def format_default(value: Any) -> str:
    """The default of an option as YAML; of an object that no recipe can write its type.

    Parts of others may have such defaults.
    """
    try:
        return documents.format_inline(to_plain(value))
    except RlcliError:
        return f"a {type(value).__name__}"


def _dataclass_in(annotation: Any) -> Any:
    types = (base for base, _ in within(annotation))
    return next(filter(dataclasses.is_dataclass, types), None)


def default_evaluation(
    steps: int, iteration_size: int, episodes: int | None, host_length: int | None
) -> dict[str, int | None]:
    """The defaults of `train.evaluate`: ten evaluations, the last one at the end.

    A short run has none, since compiling an evaluation would take longer than the
    training. On the host there are fewer evaluations, of fewer episodes, such that they
    have at most a tenth of the steps.

    Args:
        steps: those of the run.
        iteration_size: steps of one iteration of the run.
        episodes: those of an evaluation that the recipe sets.
        host_length: the steps of the longest episodes, if they run on the host.
    """
    count, most = _EVALUATIONS, episodes or _EPISODES
    if host_length is not None:
        budget = int(_HOST_SHARE * steps) // host_length  # episodes of the run
        few = episodes or max(1, min(_FEW_EPISODES, budget))
        count = min(count, budget // few)
        most = episodes or min(most, budget // max(1, count))
    if steps < EVALUATED_STEPS or not count:
        return {"every": None}
    last = steps // iteration_size * iteration_size
    return {"every": max(1, last // count), "episodes": most}


def contradictions(
    train: Train, num_envs: int, has_replay: bool
) -> Iterator[tuple[Place, str, str]]:
    """Contradictory or unsupported options of `train`: (place, message, hint)."""
    if train.start >= train.steps:
        message = f"the agent would never learn: `start` is {train.start:,}"
        hint = "updates begin after `start` steps: lower `start` below `steps`"
        yield ("train", "start"), f"{message}, `steps` is {train.steps:,}", hint
    if train.unroll * num_envs > train.steps:
        size = f"{train.unroll:,} × {num_envs:,}"
        message = f"the agent would never learn: an unroll has {size} steps"
        hint = "raise `train.steps`, or lower `train.unroll` or `environment.num_envs`"
        message = f"{message}, but the run has only {train.steps:,}"
        yield ("train", "steps"), message, hint
    yield from _overflows(train, num_envs)
    replaying = {"updates": train.updates != 1, "start": 0 < train.start < train.steps}
    for key, is_set in replaying.items():
        if is_set and not has_replay:
            message = f"`{key}` requires a replay"
            hint = "without a replay the agent learns once from every unroll"
            yield ("train", key), message, hint
    if train.stop and train.evaluate.every is None:
        message = "`stop` requires evaluations during training"
        yield ("train", "stop"), message, "for example `evaluate: {every: 10_000}`"
    for name in train.stop or ():
        if name != "return" and (hint := suggest_similar(name, ["return"])):
            yield ("train", "stop", name), f"there is no {quote(name)} to reach", hint


def _overflows(train: Train, num_envs: int) -> Iterator[tuple[Place, str, str]]:
    """Counts that exceed the int32 counters of the loop."""
    unroll_size = train.unroll * num_envs
    iterations = train.steps // unroll_size
    if unroll_size > INT32_MAX:
        message = f"an unroll has {train.unroll:,} × {num_envs:,} steps"
        hint = "lower `train.unroll` or `environment.num_envs`"
        yield ("train", "unroll"), f"{message}, but {_COUNTER_LIMIT}", hint
    if iterations * train.unroll > INT32_MAX:
        steps = iterations * train.unroll
        message = f"the run has {steps:,} steps of each environment"
        most = INT32_MAX // train.unroll * unroll_size + unroll_size - 1
        hint = f"lower `train.steps` to at most {most:,}"
        yield ("train", "steps"), f"{message}, but {_COUNTER_LIMIT}", hint
    # The loop multiplies by the numerator before it divides: the product has to fit.
    elif iterations * train.updates.numerator > INT32_MAX:
        count = shorten(f"{iterations * train.updates.numerator:,}", 30)
        message = f"the run makes {count}"
        if train.updates.denominator > 1:
            message += f" / {train.updates.denominator:,}"
        most = INT32_MAX // train.updates.numerator * unroll_size
        hint = "lower `train.updates`"
        if most >= unroll_size:
            hint += f", or `train.steps` to at most {most:,}"
        yield ("train", "updates"), f"{message} updates, but {_COUNTER_LIMIT}", hint


_COUNTER_LIMIT = f"32-bit counters only reach {INT32_MAX:,}"
