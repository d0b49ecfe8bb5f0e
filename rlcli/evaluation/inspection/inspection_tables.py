"""Tables: an inspection for people, in a terminal of 80 columns or on a page."""

from collections.abc import Iterator

from rlcli.evaluation.inspection.inspection_records import (
    InspectionData,
    ReplayRecord,
    ValueRecord,
)
from rlcli.quoting import quote_html
from rlcli.runs.formatting import NOTHING, format_number
from rlcli.runs.result import Table, html_lines, text_lines


def headline(found: InspectionData) -> str:
    """What is shown, in a sentence."""
    steps = found.gradient_steps
    return (
        f"update {found.update + 1:,} of `{found.updater}`, at step {found.step:,} of "
        f"seed {found.seed}: {steps:,} gradient step{'' if steps == 1 else 's'}"
    )


def tables(found: InspectionData) -> Iterator[Table]:
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
    title = f"value against discounted return, {value.episodes} episodes"
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


def as_text(found: InspectionData) -> str:
    """The inspection as text, with aligned columns."""
    lines = [headline(found)]
    for table in tables(found):
        lines += ["", table.title, *text_lines(table)]
    lines += ["", *(f"sign: {each}" for each in found.signs)]
    return "\n".join(lines).rstrip()


def as_html(found: InspectionData) -> str:
    """The inspection as a part of a page, for a notebook."""
    lines = [f"<p>{quote_html(headline(found))}</p>"]
    lines += [f"<p>sign: {quote_html(each)}</p>" for each in found.signs]
    for table in tables(found):
        lines += [f"<h4>{quote_html(table.title)}</h4>", *html_lines(table)]
    return "\n".join(lines)
