"""Records: what `rlcli.inspect` returns, and its tables for terminals and pages."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rlcli.quoting import quote_html
from rlcli.runs.formatting import NOTHING, format_number, format_number_of
from rlcli.runs.result import Table, html_lines, text_lines


@dataclasses.dataclass(frozen=True)
class ArrayRecord:
    """An array of a batch; statistics are over its rows of weight > 0."""

    name: str  # such as `reward`, or `obs/position`
    shape: tuple[int, ...]  # `[T, B, ...]`
    mean: float
    std: float
    min: float
    max: float
    finite: bool  # whether all numbers are
    constant: bool  # whether there are several rows, which are all equal


@dataclasses.dataclass(frozen=True)
class LossRecord:
    """A term of a loss."""

    groups: tuple[str, ...]  # of parameters that its gradient step changes
    name: str
    value: float  # the weighted mean over the batch


@dataclasses.dataclass(frozen=True)
class LayerRecord:
    """A layer: Euclidean norms of all its numbers."""

    name: str  # the tree path, such as `policy/mlp/linear_1`
    parameters: int
    norm: float  # of the parameters
    gradient: float  # of the gradient, before the optimizer clips it
    change: float  # of what the optimizer adds to the parameters


@dataclasses.dataclass(frozen=True)
class ActivationRecord:
    """An activation function of a network, on the observations of the batch."""

    function: str  # of the updater, such as `policy`
    layer: str  # the tree path of the parameters before it
    activation: str  # such as `relu`
    units: int
    dead: float  # the fraction of units with the same output for every row
    saturated: float | None  # of a tanh: the fraction of outputs beyond ±0.99


@dataclasses.dataclass(frozen=True)
class ActionRecord:
    """One action of a Discrete space."""

    action: int
    batch: float  # its fraction of the batch
    replay: float | None  # its fraction of the replay
    probability: float | None  # its mean probability in the evaluated episodes


@dataclasses.dataclass(frozen=True)
class ValueBin:
    """Steps of evaluated episodes with similar value estimates."""

    steps: int
    value: float  # the mean estimate
    result: float  # the mean discounted return from these steps on


@dataclasses.dataclass(frozen=True)
class ValueRecord:
    """The value estimates of evaluated episodes, and what was then obtained."""

    episodes: int
    steps: int  # that were compared: not those whose return a time limit cuts
    value: float  # the mean estimate v(s)
    result: float  # the mean discounted return Σ γᵏ r from the same steps on
    correlation: float | None  # None if one of them is constant
    explained_variance: float | None  # 1 − Var(return − value) / Var(return)
    bins: Sequence[ValueBin]  # fifths of the steps, by increasing value
    entropy: float | None  # of the policy, in nats; the mean over the steps


@dataclasses.dataclass(frozen=True)
class ReplayRecord:
    """The steps in a replay; statistics are of at most 2 000 of them."""

    name: str
    capacity: int  # 0 where it is not limited
    stored: int
    episodes: float  # ends of episodes per stored step
    terminated: float  # terminations per stored step
    rewards: ArrayRecord
    rewarded: float  # the fraction of steps whose reward is not 0


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What an updater gets and does in the next update of a checkpoint.

    `print` shows its tables, and so does a notebook. `signs` are sentences about what
    is often wrong where agents do not learn, see the guide "My agent does not learn".
    `notes` say what could not be shown.
    """

    run: str | None  # the folder of the run
    checkpoint: str
    updater: str
    seed: int
    step: int  # environment steps of the seed
    update: int  # updates so far
    gradient_steps: int  # in the next update
    batch: Sequence[ArrayRecord]
    losses: Sequence[LossRecord]  # of its first gradient steps
    layers: Sequence[LayerRecord]
    activations: Sequence[ActivationRecord]
    actions: Sequence[ActionRecord]
    value: ValueRecord | None
    replay: ReplayRecord | None
    signs: Sequence[str]
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """The record as dicts and lists, as `rlcli inspect --json` prints it."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        lines = [headline(self)]
        for table in tables(self):
            lines += ["", table.title, *text_lines(table)]
        lines += ["", *(f"sign: {each}" for each in self.signs)]
        return "\n".join(lines).rstrip()

    def _repr_html_(self) -> str:
        lines = [f"<p>{quote_html(headline(self))}</p>"]
        lines += [f"<p>sign: {quote_html(each)}</p>" for each in self.signs]
        for table in tables(self):
            lines += [f"<h4>{quote_html(table.title)}</h4>", *html_lines(table)]
        return "\n".join(lines)


def headline(found: Inspection) -> str:
    """What is shown, in a sentence."""
    steps = found.gradient_steps
    return (
        f"update {found.update + 1:,} of `{found.updater}`, at step {found.step:,} of "
        f"seed {found.seed}: {steps:,} gradient step{'' if steps == 1 else 's'}"
    )


def tables(found: Inspection) -> Iterator[Table]:
    """The tables of an inspection; those without rows are left out."""
    batch = [
        [
            f"{each.name} {list(each.shape)}",
            *map(format_number, (each.mean, each.std, each.min, each.max)),
        ]
        for each in found.batch
    ]
    losses = [
        [each.name, format_number(each.value), ", ".join(each.groups)]
        for each in found.losses
    ]
    layers = [
        [
            each.name,
            f"{each.parameters:,}",
            *map(format_number, (each.norm, each.gradient, each.change)),
        ]
        for each in found.layers
    ]
    activations = [
        [
            f"{each.function}: {each.layer}",
            each.activation,
            f"{each.units:,}",
            _percent(each.dead),
            _percent(each.saturated),
        ]
        for each in found.activations
    ]
    actions = [
        [str(each.action), *map(_percent, (each.batch, each.replay, each.probability))]
        for each in found.actions
    ]
    header = ["array [steps, environments, …]", "mean", "std", "min", "max"]
    whole = [
        Table("batch, as the updater gets it", header, batch),
        Table("terms of the loss", ["term", "mean", "changes"], losses),
        Table(
            "layers: norms of parameters, gradient, and change by the optimizer",
            ["layer", "parameters", "norm", "gradient", "change"],
            layers,
        ),
        Table(
            "activations: units with one output for all rows, outputs beyond ±0.99",
            ["layer", "function", "units", "dead", "saturated"],
            activations,
        ),
        Table("actions", ["action", "batch", "replay", "policy"], actions),
    ]
    yield from (table for table in whole if table.rows)
    if found.value is not None:
        yield _value_table(found.value)
    if found.replay is not None:
        yield _replay_table(found.replay)


def _value_table(value: ValueRecord) -> Table:
    named = {f"fifth {index}": each for index, each in enumerate(value.bins, 1)}
    rows = [
        [name, str(each.steps), *map(format_number, (each.value, each.result))]
        for name, each in {**named, "all": value}.items()
    ]
    facts = {
        "correlation": value.correlation,
        "explained variance": value.explained_variance,
        "entropy of the policy": value.entropy,
    }
    rows += [
        [name, "", "", format_number(number)]
        for name, number in facts.items()
        if number is not None
    ]
    episodes = format_number_of(value.episodes, "episode")
    title = f"value against discounted return, {episodes}"
    return Table(title, ["steps by value", "steps", "value", "return"], rows)


def _replay_table(replay: ReplayRecord) -> Table:
    capacity = f" of {replay.capacity:,}" if replay.capacity else ""
    rewards = replay.rewards
    return Table(
        f"replay `{replay.name}`: {replay.stored:,}{capacity} steps",
        ["per stored step", "value"],
        [
            ["ends of episodes", _percent(replay.episodes)],
            ["terminations", _percent(replay.terminated)],
            ["rewards that are not 0", _percent(replay.rewarded)],
            ["mean reward", format_number(rewards.mean)],
            ["smallest reward", format_number(rewards.min)],
            ["largest reward", format_number(rewards.max)],
        ],
    )


def _percent(fraction: float | None) -> str:
    return NOTHING if fraction is None else f"{fraction:.1%}"
