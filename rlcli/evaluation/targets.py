"""Targets: what evaluations make, and of how much, checked before JAX is imported."""

import math
import os
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.errors import RlcliError, quote
from rlcli.evaluation import films
from rlcli.recipe import check_document, shipped_recipes
from rlcli.registry.paths import enter
from rlcli.runs import locate
from rlcli.runs.files import check_output
from rlcli.runs.locate import locate_policy, zoo_name
from rlcli.runs.run_folder import SUFFIX, Run

DEFAULT = "render.gif"
_MAX_FPS, _MAX_SIDE = 100, 10_000  # frames per second, and pixels
# With these a path begins that is not the name of an environment.
_FIRST_PARTS = ("/", "..", "runs", locate.ZOO)


def check_whole(name: str, number: Any, least: int = 1, most: float = math.inf) -> None:
    """Refuses what is not a whole number between two limits."""
    if not (isinstance(number, int | np.integer) and least <= number <= most):
        limits = f"≥ {least}" if most == math.inf else f"from {least:,} to {most:,}"
        raise RlcliError(f"`{name}` is {quote(number)}, expected an int {limits}")


def check_rendering(
    path: str | Path,
    *,
    best: bool = False,
    output: str | Path | None = None,
    episodes: int = 1,
    fps: float | None = None,
    size: tuple[int, int] | None = None,
) -> None:
    """Refuses, before JAX is imported, a video that cannot be made or written."""
    check_whole("episodes", episodes)
    if fps is not None and not (isinstance(fps, Real) and 1 <= fps <= _MAX_FPS):
        limits = f"a number from 1 to {_MAX_FPS}"
        raise RlcliError(f"`fps` is {quote(fps)}, expected {limits}")
    if size is not None:
        if not isinstance(size, tuple | list) or len(size) != 2:
            raise RlcliError(f"`size` is {quote(size)}, expected (width, height)")
        for side in size:
            check_whole("size", side, most=_MAX_SIDE)
    target = Path(DEFAULT)
    if is_recipe(path):
        check_document(path)
    elif is_policy_path(path):
        target = default_output(*locate_policy(path, best=best), DEFAULT)
    films.check_target(target if output is None else Path(output))


def default_output(run: Run | None, policy: Path, name: str) -> Path:
    """The place of a file about a policy: the folder of its run, or beside its file.

    That of a policy of the zoo is written to the current folder.
    """
    if zoo_name(policy):
        return Path(name)
    return (run.folder if run else policy.parent) / name


def is_recipe(path: str | Path) -> bool:
    """Whether a path is a recipe: a YAML file, or the name of a built-in recipe."""
    file = Path(path)
    is_named = file.suffix in (".yaml", ".yml") or str(path) in shipped_recipes()
    return is_named and not os.path.isdir(file)


def is_policy_path(path: str | Path) -> bool:
    """Whether a path can only be a run or a policy file, existing or not."""
    file = Path(path)
    starts_like_path = bool(file.parts) and file.parts[0] in _FIRST_PARTS
    return os.path.isdir(file) or file.name.endswith(SUFFIX) or starts_like_path


def check_collection(
    run: str | Path,
    *,
    output: str | Path | None,
    best: bool,
    episodes: int | None,
    steps: int | None,
    explore: bool,
    random: bool,
) -> tuple[Path, Path]:
    """The policy file, and the file to write.

    Refuses what cannot work, before JAX is imported.
    """
    owner, policy = locate_policy(run, best=best)
    default = default_output(owner, policy, "dataset.npz")
    file = enter(default if output is None else output)
    check_output(file, "a data set", [".npz"])
    if episodes is not None and steps is not None:
        raise RlcliError(
            "both `episodes` and `steps` are given", "choose one of the two"
        )
    for key, number in {"episodes": episodes, "steps": steps}.items():
        if number is not None:
            check_whole(key, number)
    if explore and random:
        raise RlcliError(
            "both `explore` and `random` are given", "choose one of the two"
        )
    return policy, file
