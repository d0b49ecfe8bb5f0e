"""Layout: the files of a sweep, and its settings in `sweep.yaml`.

runs/sweeps/<recipe>/<time>/
  sweep.yaml      the settings
  space.yaml      the space
  recipe.yaml     the recipe without the space, with every default filled in
  journal.log     the trials, as Optuna's journal file
  trials/0007/    the run of a trial
  source/a.yaml   with a storage of runs: the recipe that its tasks train
  jobs/0007.json  the runs that are trained together, if there are several
  confirm/0007/   the run of one of the best trials, with other seeds
  result.json     the winner
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcli.errors import EXIT_CODES, RlcliError, quote
from rlcli.recipe import Recipe
from rlcli.recipe.documents import MAX_BYTES, Document, dump_yaml, load_document
from rlcli.runs import locks
from rlcli.runs.files import (
    check_writable,
    read_json,
    read_text,
    replace_file,
    to_json,
    write_json,
)
from rlcli.runs.naming import check_name, name_or_time, number_folder
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.studies.search.space import Space, read_space

_NUMBERS = ("trials", "seed", "seeds", "confirm", "confirm_seeds", "together", "ready")
_OPTIONAL = ("storage", "run_storage", "together", "ready")
FORMAT = 1  # of `sweep.yaml`
_INDEPENDENT = ("random", "grid")  # samplers that do not learn from other trials
TRIALS, CONFIRMATIONS, JOBS = "trials", "confirm", "jobs"
SOURCE, LOGS = "source", "slurm"
FOLDERS = (TRIALS, CONFIRMATIONS, JOBS, SOURCE, LOGS)  # of a sweep
_RUNS = TRIALS, CONFIRMATIONS
GROUP = "sweeps"  # the folder of all sweeps, below the folder of runs
REMEDY = "restore the file from a copy of the sweep's folder"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a sweep; `--resume` uses them again."""

    recipe: str  # the absolute path of a file, or the name of a built-in recipe
    set: tuple[str, ...]
    trials: int
    seed: int
    seeds: int
    sampler: str
    pruner: str
    objective: str
    confirm: int
    confirm_seeds: int
    storage: str | None  # the URL of a database instead of the journal
    run_storage: str | None  # the URL of a store where tasks keep their runs
    study: str  # its name in the storage
    ready: int | None  # of `pbt`: evaluations between two rounds
    together: int | None  # trials that are begun at once; None: not chosen yet

    @property
    def has_independent_trials(self) -> bool:
        """Whether a trial depends on its number only, not on the results of others."""
        return self.sampler in _INDEPENDENT


@dataclass(frozen=True)
class SweepFolder(OpenedFolder):
    """The folder of a sweep, with the paths of its files."""

    @property
    def settings(self) -> Path:
        """How the sweep was started."""
        return self.find("sweep.yaml")

    @property
    def space(self) -> Path:
        """The space, as it was given."""
        return self.find("space.yaml")

    @property
    def recipe(self) -> Path:
        """The recipe without the space, with every default filled in."""
        return self.find("recipe.yaml")

    @property
    def journal(self) -> Path:
        """Optuna's journal file."""
        return self.find("journal.log")

    @property
    def result(self) -> Path:
        """The winner of a sweep that has ended."""
        return self.find("result.json")

    def source(self, recipe: Path) -> Path:
        """A copy of the recipe, which has its name and extends no other."""
        return self.find(SOURCE, f"{recipe.stem}.yaml")

    def trial(self, number: int) -> Path:
        """The run of a trial."""
        return self.find(TRIALS, f"{number:04d}")

    @property
    def population(self) -> Path:
        """The folder of the members of a population, and of its record."""
        return self.find(TRIALS)

    def job(self, number: int) -> Path:
        """The runs that are trained together; `number` is the first trial."""
        return self.find(JOBS, f"{number:04d}.json")

    @property
    def confirmations(self) -> Path:
        """The folder of the runs with other seeds."""
        return self.find(CONFIRMATIONS)

    def confirmation(self, number: int) -> Path:
        """The run of a trial with other seeds."""
        return self.find(CONFIRMATIONS, f"{number:04d}")

    def load_recipe_with(self, settings: Settings, sets: Sequence[str] = ()) -> Recipe:
        """The recipe of the sweep, with the settings of a trial."""
        return self.load_recipe(settings.recipe, [*settings.set, *sets])

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Prevents other processes from continuing this sweep."""
        return locks.hold(self.folder)

    def read_settings(self) -> Settings:
        """The settings; an `RlcliError` if this is no sweep."""
        if not is_sweep(self.folder):
            raise RlcliError(
                f"{quote(self.folder)} is not the folder of a sweep",
                "`rlcli sweep RECIPE --space FILE` starts one",
            )
        data = self._read_yaml(self.settings).data
        version = data.get("format")
        if type(version) is int and version > FORMAT:
            raise RlcliError(
                f"`{self.settings}` has format version {version}, but this rlcli only "
                f"supports {FORMAT}",
                "upgrade: `pip install --upgrade rlcli`",
            )
        fields = {field.name for field in dataclasses.fields(Settings)}
        if (
            version != FORMAT
            or not fields <= data.keys()
            or not all(_has_type(name, data[name]) for name in fields)
        ):
            message = f"`{self.settings}` is damaged, or from another version of rlcli"
            raise RlcliError(message, REMEDY)
        chosen: dict[str, Any] = {name: data[name] for name in fields}
        chosen["set"] = tuple(chosen["set"])
        return Settings(**chosen)

    def write_settings(self, settings: Settings) -> None:
        """Replaces the settings."""
        data = dataclasses.asdict(settings) | {"set": [*settings.set]}
        replace_file(self.settings, dump_yaml({"format": FORMAT, **data}).encode())

    def read_space(self) -> Space:
        """The space that is searched."""
        return read_space(self._read_yaml(self.space))

    def read_recipe(self) -> str:
        """The text of `recipe.yaml`."""
        return read_text(self.recipe, REMEDY, most=MAX_BYTES)

    def _read_yaml(self, path: Path) -> Document:
        text = read_text(path, REMEDY, most=MAX_BYTES)
        return load_document(text, source=str(path), example=REMEDY)

    def read_result(self) -> dict[str, Any]:
        """The status, the winner and the confirmed trials; {} if there is no file."""
        path = self.result
        result = read_json(path, REMEDY_OF_RESULT)
        for name, is_sound in _RESULT_FIELDS.items():
            if name in result and not is_sound(result[name]):
                value = quote(to_json(result[name]))
                message = f"`{path}` is damaged: `{name}` is {value}"
                raise RlcliError(message, REMEDY_OF_RESULT)
        return result

    def write_result(self, result: dict[str, Any]) -> None:
        """Writes the winner."""
        write_json(self.result, result)


def _has_type(name: str, value: Any) -> bool:
    """Whether a value of `sweep.yaml` has the type of the field of `Settings`."""
    if name == "set":
        return isinstance(value, list) and all(map(_is_word, value))
    if name in _OPTIONAL and value is None:
        return True
    if name in _NUMBERS:
        return type(value) is int
    return _is_word(value)


def _is_word(value: Any) -> bool:
    """Whether a value can be an argument of a process."""
    return isinstance(value, str) and "\0" not in value


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


_ENTRY = {"trial", "options", "run", "trial_value", "value", "ci95", "seeds"}


def _is_entry(value: Any) -> bool:
    """Whether a value is a trial in the result of a sweep; see `describe_entry`."""
    if not isinstance(value, dict) or not value.keys() >= _ENTRY:
        return False
    trial, seeds, interval = value["trial"], value["seeds"], value["ci95"]
    return (
        type(trial) is int
        and trial >= 0
        and value["run"] in [f"{each}/{trial:04d}" for each in _RUNS]
        and isinstance(value["options"], dict)
        and _are_numbers([value["value"], value["trial_value"]])
        and (seeds is None or _are_numbers(seeds))
        and (interval is None or (_are_numbers(interval) and len(interval) == 2))
    )


def _are_numbers(values: Any) -> bool:
    """Whether a value is a list of numbers, which are null if they are not finite."""
    return isinstance(values, list) and all(
        each is None or _is_number(each) for each in values
    )


REMEDY_OF_RESULT = "remove it: `--resume` writes it again"
_RESULT_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "status": lambda value: value in ["running", "killed", *EXIT_CODES],
    "winner": lambda value: (
        value is None or (_is_entry(value) and _is_number(value["value"]))
    ),
    "confirmed": lambda value: isinstance(value, list) and all(map(_is_entry, value)),
}


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return os.path.lexists(folder / "sweep.yaml")


def create_sweep(
    folder: Path, settings: Settings, space: Space, recipe: str, *, trust: bool = False
) -> SweepFolder:
    """Creates the folder of a sweep; refuses one that exists.

    `trust`: the recipe that the user has named needs it.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise RlcliError(
            f"`{folder}` exists already",
            "`--resume` continues a sweep, `--run` or `--name` choose another folder",
        ) from error
    sweep = SweepFolder(folder, trust)
    text = space.document.text or dump_yaml(space.document.data)
    replace_file(sweep.space, text.encode())
    replace_file(sweep.recipe, recipe.encode())
    sweep.write_settings(settings)  # last: it marks the folder as a sweep
    return sweep


def choose_folder(
    title: str, runs: str | Path, run: str | Path | None, name: str | None
) -> Path:
    """The folder of a new sweep, `<runs>/sweeps/<recipe>/<time>`; creates nothing."""
    if run is not None:
        folder = Path(run)
        if os.path.lexists(folder):
            hint = "continue the sweep with `--resume`, or choose another folder"
            raise RlcliError(f"`{folder}` exists already", hint)
    else:
        folder = number_folder(Path(runs) / GROUP / title / name_or_time(name))
    check_writable(folder, "choose another folder with `--runs` or `--run`")
    return folder


def find_sweep(
    title: str, runs: str | Path, run: str | Path | None, name: str | None
) -> Path:
    """The sweep of a recipe that `--resume` continues: the named or the newest one."""
    if run is not None:
        return Path(run)
    parent = Path(runs) / GROUP / title
    pattern = "*" if name is None else check_name(name)
    found = [path for path in parent.glob(pattern) if is_sweep(path)]
    if not found:
        where = f"`{parent / name}`" if name else f"a sweep below `{parent}`"
        raise RlcliError(
            f"there is no sweep to resume: expected {where}",
            "remove `--resume` to start a new sweep",
        )
    return max(found, key=lambda path: path.stat().st_mtime)


def first_confirmed_seed(settings: Settings) -> int:
    """The first seed that no trial has used."""
    return settings.seed + settings.seeds


def trial_arguments(
    sweep: SweepFolder,
    settings: Settings,
    folder: Path,
    sets: Sequence[str],
    seed: int,
    seeds: int,
) -> list[str]:
    """The arguments of `rlcli` that train the run of a trial."""
    arguments = ["train", *sweep.train_options, "--quiet", "--run", str(folder)]
    arguments += ["--seed", str(seed), "--seeds", str(seeds)]
    for setting in (*settings.set, *sets):
        arguments += ["--set", setting]
    return [*arguments, "--", settings.recipe]
