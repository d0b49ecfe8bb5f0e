"""Locate: finds the run, or the policy file, that a user names by a path."""

from __future__ import annotations

import difflib
import shlex
import time
from pathlib import Path

from rlcli.errors import RlcliError
from rlcli.runs.run_folder import TIME, Run, is_run


def locate_policy(path: str | Path, *, best: bool = False) -> tuple[Run | None, Path]:
    """The run and the policy file that a user means, for eval and render.

    `path` is a run's folder, the folder of a recipe's runs (the newest is meant), or a
    policy or checkpoint file anywhere, which may belong to no run. A run is meant by
    its `policy.pkl.lz4`, or by `best.pkl.lz4` if `best`.
    """
    path = Path(path)
    if path.is_file():
        run = _owning_run(path)
        if best and (run is None or path != run.best):
            raise RlcliError(
                f"`--best` chooses from a run, and `{path}` is one file",
                "name the folder of the run, or leave out `--best`",
            )
        return run, path
    run = locate_run(path)
    if best:
        return run, _best_policy(run)
    policy = run.policy if run.policy.is_file() else run.latest_checkpoint()
    if policy is None:
        raise RlcliError(
            f"run `{run.folder}` has no policy yet",
            "its first checkpoint brings one; "
            f"`rlcli resume {shlex.quote(str(run.folder))}` goes on with it",
        )
    return run, policy


def locate_run(path: str | Path) -> Run:
    """The run that a user means: its folder, any file of it, or its recipe's folder."""
    path = Path(path)
    if path.is_file():
        run = _owning_run(path)
        if run is None:
            raise RlcliError(
                f"`{path}` lies in no run",
                "name the folder of a run, `runs/<recipe>/<time>`",
            )
        return run
    if not path.is_dir():
        raise RlcliError(f"there is no `{path}`", _suggest_path(path))
    if is_run(path):
        return Run(path)
    full_path = path.absolute()  # "." has no name
    if full_path.name == "checkpoints" and is_run(full_path.parent):
        return Run(path.parent if path.name else full_path.parent)
    inside = [info.parent for info in path.glob("*/run.json")]
    if inside:
        return Run(max(inside, key=_start_order))
    recipes = sorted({info.parents[1] for info in path.glob("*/*/run.json")})
    raise RlcliError(
        f"`{path}` holds no run",
        "name one of its folders: " + ", ".join(f"`{recipe}`" for recipe in recipes)
        if recipes
        else "a run is a folder with a `run.json`, made by `rlcli train`",
    )


def _best_policy(run: Run) -> Path:
    if not run.best.is_file():
        raise RlcliError(
            f"run `{run.folder}` has no best policy",
            "evaluations find it while training: `train.evaluate` in the recipe; "
            "without `--best` the latest policy is taken",
        )
    return run.best


def _owning_run(path: Path) -> Run | None:
    """The run that a file lies in, itself or among the checkpoints."""
    parents = path.parents if len(path.parents) > 1 else path.absolute().parents
    if parents[0].name == "checkpoints" and is_run(parents[1]):
        return Run(parents[1])
    return Run(path.parent) if is_run(path.parent) else None


def _start_order(folder: Path) -> tuple[str, int]:
    """Sorts runs by when they began: by name, or, for a name of the user's, by file."""
    match = TIME.fullmatch(folder.name)
    if match:
        return match[1], int(match[2] or 1)
    created = time.gmtime((folder / "run.json").stat().st_mtime)
    return time.strftime("%Y-%m-%dT%H-%M-%S", created), 1


def _suggest_path(path: Path) -> str:
    """What beside a path that is not there has nearly its name, or such a recipe."""
    recipe_runs = Path("runs") / path
    if recipe_runs.exists():
        return f"did you mean `{recipe_runs}`?"
    while not path.parent.is_dir():
        path = path.parent
    siblings = [sibling.name for sibling in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, siblings, n=1)
    if close:
        return f"did you mean `{path.parent / close[0]}`?"
    return "`rlcli train` makes runs, `runs/<recipe>/<time>`"
