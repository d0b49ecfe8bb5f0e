"""Frozen seeds: the record of seeds whose training has failed.

A gradient step whose loss is not finite is not taken, and its seed takes no other one:
it is frozen. Policy files and checkpoints carry the record, so that results of such a
seed are never mistaken for those of a sound one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.recipe import DEFAULT, Recipe
from rlcli.updaters.optimizers import CLIP

LONGEST = 1_000  # characters of a reason
_FIELDS = {"step": int, "reason": str, "environment": bool}


class Frozen(NamedTuple):
    """Why and when a seed was frozen."""

    step: int  # environment steps of the seed by then
    reason: str
    environment: bool = False  # whether its environment returned what is not finite

    @property
    def label(self) -> str:
        """A few words for a cell of a table."""
        return f"at step {self.step:,}"


FrozenSeeds = Mapping[int, Frozen]  # by seed


def describe_frozen(frozen: FrozenSeeds, seeds: int) -> str:
    """How many of the seeds are frozen, and why; "" if none is."""
    if not frozen:
        return ""
    reasons = "; ".join(f"seed {seed}: {each.reason}" for seed, each in frozen.items())
    return f"{count_frozen(len(frozen), seeds)}: {reasons}"


def count_frozen(count: int, seeds: int) -> str:
    """Such as "2 of 5 seeds are frozen"."""
    if seeds == 1:
        return "the seed is frozen"
    return f"{count} of {seeds} seeds {'is' if count == 1 else 'are'} frozen"


def suggest_remedy(recipe: Recipe, frozen: FrozenSeeds) -> str:
    """What to try so that no seed freezes; "" if none is frozen."""
    if not frozen:
        return ""
    remedies = []
    if any(each.environment for each in frozen.values()):
        name = recipe.environment.name
        remedies.append(f"make environment `{name}` return finite numbers")
    if not all(each.environment for each in frozen.values()):
        remedies.append(_remedy_of_training(recipe))
    return "; ".join(remedies)


def _remedy_of_training(recipe: Recipe) -> str:
    """Smaller steps, smaller gradients or smaller rewards."""
    lone = set(recipe.optimizer) == {DEFAULT}
    options = {
        f"`optimizer.{name}`" if lone else f"`optimizer.{group}.{name}`": value
        for group, part in recipe.optimizer.items()
        for name, value in part.options.items()
        if name in ("learning_rate", CLIP)
    }
    lower = [name for name, value in options.items() if value is not None]
    remedies = [f"lower {', '.join(lower)}"] if lower else []
    if unset := [name for name, value in options.items() if value is None]:
        remedies.append(f"set {', '.join(unset)} (such as 0.5)")
    if not recipe.normalize.reward:
        remedies.append("set `normalize.reward` where rewards are large")
    return ", or ".join(remedies)


def dump_frozen(frozen: FrozenSeeds) -> dict[str, Any]:
    """The record as plain data, with seeds as text."""
    return {
        str(seed): each._replace(reason=each.reason[:LONGEST])._asdict()
        for seed, each in frozen.items()
    }


def load_frozen(data: Any, seeds: Sequence[int]) -> dict[int, Frozen]:
    """The record again; a ValueError where the data is not well formed."""
    known = {str(seed): seed for seed in seeds}
    if not isinstance(data, dict) or not data.keys() <= known.keys():
        raise ValueError("expected a dict by seed")
    return {known[seed]: _load_entry(entry) for seed, entry in data.items()}


def _load_entry(entry: Any) -> Frozen:
    if (
        not isinstance(entry, dict)
        or {name: type(value) for name, value in entry.items()} != _FIELDS
        or entry["step"] < 0
        or len(entry["reason"]) > LONGEST
        or not entry["reason"].isprintable()  # it is shown in a terminal
    ):
        raise ValueError(f"expected {', '.join(_FIELDS)}")
    return Frozen(**entry)
