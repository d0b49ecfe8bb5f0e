"""Opening: a sweep that exists enters a command here, see `OpenedFolder`."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.results.checks import check_choice
from rlcli.studies.search import pbt
from rlcli.studies.search.layout import FOLDERS, Sweep, read_sweep
from rlcli.studies.search.objectives import parse_objective
from rlcli.studies.search.trials import PRUNERS, SAMPLERS

_BOUNDS: Mapping[str, tuple[int, int]] = {  # of the options that are numbers
    "trials": (1, 100_000),
    "seeds": (1, 1_000_000),
    "seed": (0, 2**31 - 1),
    "confirm": (0, 1_000_000),
    "confirm_seeds": (1, 1_000_000),
    "together": (1, 10_000),
    "ready": (1, 1_000_000),
}


def open_sweep(folder: str | Path, *, trust: bool | None = None) -> Sweep:
    """Opens a sweep that may come from elsewhere; refuses one that is damaged.

    `trust`: whether its recipe may import code, and its trackers may contact a host; by
    default if it is the user's own, or in a folder that the user trusts.
    """
    sweep = read_sweep(Path(folder), trust)
    sweep.refuse_links(*FOLDERS)
    given = dataclasses.asdict(sweep.settings)
    try:
        check_options({key: each for key, each in given.items() if each is not None})
    except RlcliError as error:
        message = f"`{sweep.record}`: {error.message}"
        raise RlcliError(message, error.hint) from error
    return sweep


def check_options(given: Mapping[str, Any]) -> None:
    """Refuses options of a sweep that cannot be; reads no file."""
    check_choice("sampler", given.get("sampler", SAMPLERS[0]), SAMPLERS)
    check_choice("pruner", given.get("pruner", PRUNERS[0]), PRUNERS)
    parse_objective(given.get("objective", "return"))
    for name, (least, most) in _BOUNDS.items():
        if name in given and not least <= given[name] <= most:
            expected = f"≥ {least}" if given[name] < least else f"≤ {most:,}"
            raise RlcliError(f"`{name}` cannot be {given[name]}: expected {expected}")
    pbt.check_options(given)
