"""Locate: finds the runs, or the policy file, that a user names by a path.

The trained policies that come with rlcli are `zoo/<recipe>`. Imports no JAX.
"""

import difflib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rlcli.errors import RlcliError, quote, shell_path
from rlcli.registry.paths import enter
from rlcli.replays.datasets.names import shipped_folder
from rlcli.runs.files import explain_file_errors, read_json, refuse_link
from rlcli.runs.naming import TIME_FORMAT
from rlcli.runs.run_folder import SUFFIX, TIME, Run, checkpoint_step, is_run
from rlcli.runs.study_record import find_study

ZOO = "zoo"  # the folder of shipped policies, and the first part of their names


def shipped_policies() -> dict[str, Path]:
    """The policy files that come with rlcli, by the name of their recipe."""
    files = sorted((shipped_folder() / ZOO).glob(f"*{SUFFIX}"))
    return {file.name.removesuffix(SUFFIX): file for file in files}


def find_shipped_policy(path: str | Path) -> Path:
    """The file of a policy `zoo/<recipe>`; any other path, and any that exists, as is.

    Raises an `RlcliError` for a name that the zoo does not have.
    """
    path = Path(path)
    if path.parts[:1] != (ZOO,) or len(path.parts) != 2 or path.exists():
        return path
    policies = shipped_policies()
    name = path.name.removesuffix(SUFFIX)
    if name in policies:
        return policies[name]
    close = difflib.get_close_matches(name, policies, n=1)
    names = ", ".join(policies)
    raise RlcliError(
        f"there is no policy `{path}` in the zoo",
        (f"did you mean `{ZOO}/{close[0]}`? " if close else "")
        + f"it has policies of these recipes: {names}",
    )


def zoo_name(file: Path) -> str:
    """The name of the recipe of a shipped policy's file; "" for any other file."""
    name = file.name.removesuffix(SUFFIX)
    return name if shipped_policies().get(name) == file else ""


@explain_file_errors()
def locate_policy(path: str | Path, *, best: bool = False) -> tuple[Run | None, Path]:
    """Finds the run and the policy file of a path, for eval and render.

    `path` is what `locate_run` takes, a policy or checkpoint file, which does not have
    to belong to a run, or a policy of the zoo, `zoo/<recipe>`. The policy of a run is
    `policy.pkl.lz4`, or `best.pkl.lz4` if `best`.
    """
    path = find_shipped_policy(complete_path(path))
    if _is_file(path):
        run = owning_run(path)
        if best and (run is None or path != run.best):
            message = f"`--best` requires the folder of a run, but `{path}` is a file"
            raise RlcliError(message, "pass the folder of the run, or remove `--best`")
        return run, path
    run = locate_run(path)
    if best and not run.best.is_file():
        raise RlcliError(
            f"run `{run.folder}` has no best policy",
            "it is chosen by evaluations during training (`train.evaluate` in the "
            "recipe); remove `--best` to use the latest policy",
        )
    if best:
        return run, run.best
    policy = run.policy if run.policy.is_file() else run.latest_checkpoint()
    if policy is None:
        raise RlcliError(
            f"run `{run.folder}` has no policy yet",
            "the first checkpoint writes one; "
            f"`rlcli resume {shell_path(run.folder)}` continues the run",
        )
    return run, policy


@explain_file_errors()
def locate_checkpoint(path: str | Path, step: int | None = None) -> Path:
    """Finds a checkpoint: a file, or that of a run, by default the latest.

    `path` is what `locate_run` takes. Raises an error that lists the steps of the run
    if it has no checkpoint of `step`.
    """
    path = complete_path(path)
    if _is_file(path):
        if step is None:
            return path
        message = f"`{path}` is a file: it is one checkpoint"
        raise RlcliError(message, "pass the run's folder")
    run = locate_run(path)
    file = run.latest_checkpoint() if step is None else run.checkpoint(step)
    if file is not None and file.is_file():
        return file
    steps = sorted(map(checkpoint_step, run.list_checkpoints()))
    if not steps:
        message = f"run `{run.folder}` has no checkpoint"
        raise RlcliError(message, "train it up to its first checkpoint")
    raise RlcliError(
        f"run `{run.folder}` has no checkpoint of step {step:,}",
        f"choose from {', '.join(f'`{each}`' for each in steps)}; "
        "`train.checkpoint.keep` says how many a run keeps",
    )


@explain_file_errors()
def locate_run(path: str | Path) -> Run:
    """Finds a run by its folder or one of its files, or chooses one in a folder.

    In the folder of a recipe it is the newest run, in that of a study the best.
    The overrides at the end of the folder's name, `<time>_<overrides>`, may be omitted.
    """
    path = complete_path(path)
    if find_shipped_policy(path) != path:
        raise RlcliError(
            f"`{path}` is a policy of the zoo: it has no run, and no metrics",
            "`rlcli eval`, `render`, `show`, `export` and `rlcli.load` take its name",
        )
    if _is_file(path):
        run = owning_run(path)
        if run is None:
            raise RlcliError(
                f"`{path}` does not belong to a run",
                "pass the folder of a run, `runs/<recipe>/<time>`",
            )
        return run
    if not path.is_dir():
        raise RlcliError(f"there is no file or folder `{path}`", _suggest_path(path))
    if is_run(path):
        return Run(path)
    full_path = path.absolute()  # "." has no name
    if full_path.name == "checkpoints" and is_run(full_path.parent):
        return Run(path.parent if path.name else full_path.parent)
    if several := choose_among(path):
        return Run(several.run)
    recipes = sorted({info.parents[1] for info in path.glob("*/*/run.json")})
    raise RlcliError(
        f"`{path}` is not the folder of a run",
        "pass one of its folders: " + ", ".join(f"`{recipe}`" for recipe in recipes)
        if recipes
        else "`rlcli train` creates runs, with a `run.json` in each",
    )


def _is_file(path: Path) -> bool:
    """Whether a path is a file, which may be one of a run; refuses a recipe."""
    if path.is_file() and path.suffix in (".yaml", ".yml") and not owning_run(path):
        raise RlcliError(
            f"`{path}` is a recipe, and no run",
            f"`rlcli train {shell_path(path)}` makes one",
        )
    return path.is_file()


@explain_file_errors()
def complete_path(path: str | Path) -> Path:
    """The path, with the overrides that are omitted in the name of a run's folder."""
    path = Path(path)
    if path.exists() or not TIME.fullmatch(path.name):
        return path
    matches = sorted(path.parent.glob(f"{path.name}_*"))
    if len(matches) > 1:
        listing = ", ".join(f"`{match}`" for match in matches)
        message = f"`{path}` matches {len(matches)} runs"
        raise RlcliError(message, f"pass one of {listing}")
    return enter(matches[0]) if matches else path


class Choice(NamedTuple):
    """A run that was chosen among those in a folder."""

    run: Path
    reason: str  # such as `the newest`
    count: int  # of the runs


def choose_among(path: Path) -> Choice | None:
    """Chooses a run in a folder of runs; None if it is itself a run, or has none.

    A link, which leads to a run elsewhere, is not chosen: its user has to name it.
    """
    if not path.is_dir() or is_run(path):
        return None
    if study := find_study(path):
        return Choice(study.choose_best(), "the best", len(study.runs))
    runs = [info.parent for info in path.glob("*/run.json")]
    runs = [run for run in runs if not run.is_symlink()]
    if not runs:
        return None
    return Choice(max(runs, key=_start_order), "the newest", len(runs))


def owning_run(path: Path) -> Run | None:
    """The run that contains a file, directly or among its checkpoints."""
    parents = path.parents if len(path.parents) > 1 else path.absolute().parents
    if parents[0].name == "checkpoints" and is_run(parents[1]):
        return Run(parents[1])
    return Run(path.parent) if is_run(path.parent) else None


def _start_order(folder: Path) -> tuple[str, int, str]:
    """Sort key by start time: from the folder's name, else from `run.json`."""
    match = TIME.match(folder.name)
    if match:
        return match[1], int(match[2] or 1), folder.name
    try:
        created = str(read_json(folder / "run.json")["created"])
        return created.removesuffix("Z").replace(":", "-"), 1, folder.name
    except (RlcliError, LookupError):
        changed = time.gmtime((folder / "run.json").stat().st_mtime)
        return time.strftime(TIME_FORMAT, changed), 1, folder.name


def _suggest_path(path: Path) -> str:
    """A hint with an existing path similar to a missing one."""
    recipe_runs = Path("runs") / path
    if recipe_runs.exists():
        return f"did you mean `{recipe_runs}`?"
    while not path.parent.is_dir():
        path = path.parent
    if path.is_symlink():
        return f"`{path}` is a link to `{path.readlink()}`, which is missing"
    siblings = [each.name for each in path.parent.iterdir() if each.exists()]
    matches = difflib.get_close_matches(path.name, siblings, n=1)
    if matches:
        return f"did you mean `{path.parent / matches[0]}`?"
    return "`rlcli train` creates runs, in folders `runs/<recipe>/<time>`"


def find_trained_together(run: Run) -> list[Run]:
    """The runs that are trained together with a run, itself included, in order."""
    names = run.read_info().get("members")
    if names is None:
        return [run]
    folder = run.folder.absolute()
    if folder.name not in names:
        raise RlcliError(
            f"`{run.folder}` was trained together with other runs, under another name",
            f"restore its name: one of {', '.join(map(quote, names))}",
        )
    members = [
        run if name == folder.name else Run(run.folder.parent / name) for name in names
    ]
    for member in members:
        if member is not run:  # whose path the user has named
            refuse_link(member.folder)
        if not is_run(member.folder):
            raise RlcliError(
                f"`{run.folder}` was trained together with `{member.folder}`, which is "
                "missing",
                "restore its folder, or train a new run",
            )
        info = member.read_info()  # {} if it is missing: a checkpoint recreates it
        if info and info.get("members") != names:
            raise RlcliError(
                f"`{run.info}` and `{member.info}` name different runs that were "
                "trained together",
                "restore the field `members` of both files",
            )
    return members


def change_members(runs: Sequence[Run]) -> None:
    """Makes runs in one folder the only ones that are trained together.

    Others that were trained with them are alone from now on. Continues where a process
    was killed that did the same.
    """
    names = [run.folder.name for run in runs]
    before = [run.read_info().get("members", names) for run in runs]
    others = {name for members in before for name in members}.difference(names)
    for name in sorted(others):
        other = Run(runs[0].folder.parent / name)
        refuse_link(other.folder)
        if other.read_info().get("members", [name]) != [name]:
            other.write_info(members=[name])
    for run, members in zip(runs, before, strict=True):
        if members != names:
            run.write_info(members=names)
