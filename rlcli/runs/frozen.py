"""Frozen seeds: the record of seeds whose training has failed.

A gradient step whose loss is not finite is skipped, and its seed is frozen: it makes no
further gradient steps. Policy files and checkpoints contain the record, so that results
of frozen seeds are always marked.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.recipe import Recipe

LONGEST = 1_000  # characters of a reason
_FIELDS = {"step": int, "reason": str, "environment": bool}


class FrozenSeed(NamedTuple):
    """The step and the reason of a frozen seed."""

    step: int  # environment steps of the seed when it failed
    reason: str
    environment: bool = False  # whether its environment returned non-finite values


FrozenSeeds = Mapping[int, FrozenSeed]  # by seed


def describe_frozen_seeds(frozen: FrozenSeeds, seeds: int) -> str:
    """The number of frozen seeds, and the reasons; "" if none is frozen."""
    if not frozen:
        return ""
    reasons = (f"seed {seed}: {entry.reason}" for seed, entry in frozen.items())
    return f"{format_frozen_count(len(frozen), seeds)}: {'; '.join(reasons)}"


def format_frozen_count(count: int, seeds: int) -> str:
    """Formats the number of frozen seeds: "2 of 5 seeds are frozen"."""
    if seeds == 1:
        return "the seed is frozen"
    return f"{count} of {seeds} seeds {'is' if count == 1 else 'are'} frozen"


def suggest_remedy(recipe: Recipe, frozen: FrozenSeeds) -> str:
    """A hint against frozen seeds; "" if none is frozen."""
    if not frozen:
        return ""
    remedies = []
    if any(entry.environment for entry in frozen.values()):
        name = recipe.environment.name
        remedies.append(f"make environment `{name}` return finite numbers")
    if not all(entry.environment for entry in frozen.values()):
        remedies.append(_suggest_options(recipe))
    return "; ".join(remedies)


def _suggest_options(recipe: Recipe) -> str:
    """Options for smaller steps, smaller gradients or smaller rewards."""
    options = {
        f"`{place}.{name}`": value
        for place, part in recipe.optimizers.items()
        for name, value in part.options.items()
        if name in ("learning_rate", "clip_norm")
    }
    lower = [name for name, value in options.items() if value is not None]
    remedies = [f"lower {', '.join(lower)}"] if lower else []
    if unset := [name for name, value in options.items() if value is None]:
        remedies.append(f"set {', '.join(unset)} (for example to 0.5)")
    if not recipe.normalize.reward:
        remedies.append("set `normalize.reward` if rewards are large")
    return ", or ".join(remedies)


def dump_frozen_seeds(frozen: FrozenSeeds) -> dict[str, Any]:
    """The record as plain data; seeds become strings."""
    return {
        str(seed): entry._replace(reason=entry.reason[:LONGEST])._asdict()
        for seed, entry in frozen.items()
    }


def load_frozen_seeds(data: Any, seeds: Sequence[int]) -> dict[int, FrozenSeed]:
    """Restores the record; raises a ValueError for malformed data."""
    known = {str(seed): seed for seed in seeds}
    if not isinstance(data, dict) or not data.keys() <= known.keys():
        raise ValueError("expected a dict by seed")
    return {known[seed]: _load_entry(entry) for seed, entry in data.items()}


def _load_entry(entry: Any) -> FrozenSeed:
    if (
        not isinstance(entry, dict)
        or {name: type(value) for name, value in entry.items()} != _FIELDS
        or entry["step"] < 0
        or len(entry["reason"]) > LONGEST
        or not entry["reason"].isprintable()  # it is printed to a terminal
    ):
        raise ValueError(f"expected {', '.join(_FIELDS)}")
    return FrozenSeed(**entry)
