"""Layout: the files of a sweep, its settings in `study.json`, and how it is opened.

runs/sweeps/<recipe>/<time>/
  study.json      the settings, the space, and the trials as cells
  journal.log     the trials, as Optuna's journal file
  trials/0007/    the run of a trial
  confirm/0007/   the run of one of the best trials, with other seeds
  result.json     the winner
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcli.errors import EXIT_CODES, RlcliError, quote
from rlcli.recipe import Recipe, load_to_train
from rlcli.recipe.documents import dump_yaml, load_document
from rlcli.recipe.varying import MOST_COMBINATIONS
from rlcli.results.checks import check_choice
from rlcli.runs import predicates
from rlcli.runs.cell_table import ARRAY
from rlcli.runs.files import REMEDY, check_fields, read_json
from rlcli.runs.naming import check_name
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.runs.study_record import SEARCH, Cell, find_study, is_recipe, record_study
from rlcli.studies.search.objectives import RETURN, parse_objective
from rlcli.studies.search.space import Space, read_space
from rlcli.studies.study_grid import read_cell

PBT = "pbt"
SAMPLERS = ("tpe", "random", "grid", "cmaes", "nsga2", PBT)
PRUNERS = ("asha", "median", "none")
MEMBERS = 20  # of a population, by default
INDEPENDENT = ("random", "grid")  # samplers whose trials depend on their number only
TRIALS, CONFIRMATIONS = "trials", "confirm"
_RUNS = TRIALS, CONFIRMATIONS
FOLDERS = (*_RUNS, ARRAY)  # of a sweep
GROUP = "sweeps"  # the folder of all sweeps, below the folder of runs


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a sweep; `--resume` uses them again."""

    recipe: str | Mapping[str, Any]  # that of all cells, as its digest
    digest: str
    set: tuple[str, ...] = ()  # the settings of all trials
    trials: int = 50
    seed: int
    seeds: int = 5
    sampler: str = SAMPLERS[0]
    pruner: str = PRUNERS[0]
    objective: str = RETURN
    confirm: int = 3
    confirm_seeds: int
    storage: str | None = None  # the URL of a database instead of the journal
    study: str  # its name in the storage
    ready: int | None = None  # of `pbt`: evaluations between two rounds
    together: int | None = None  # trials that are begun at once; None: not chosen yet


@dataclass(frozen=True, kw_only=True)
class Sweep(OpenedFolder):
    """A sweep that exists, or is planned, with the paths of its files."""

    settings: Settings
    space: Space

    @property
    def journal(self) -> Path:
        """Optuna's journal file."""
        return self.find("journal.log")

    @property
    def result(self) -> Path:
        """The winner of a sweep that has ended."""
        return self.find("result.json")

    def trial(self, number: int) -> Path:
        """The run of a trial."""
        return self.find(TRIALS, f"{number:04d}")

    def confirmation(self, number: int) -> Path:
        """The run of a trial with other seeds."""
        return self.find(CONFIRMATIONS, f"{number:04d}")

    def write_settings(
        self, cells: Sequence[Cell] = (), *, sign: bool | None = None, **sections: Any
    ) -> None:
        """Replaces the settings in the record, and adds cells; see `record_study`."""
        document = self.space.document
        text = document.text or dump_yaml(document.data)
        sections[SEARCH] = {**dataclasses.asdict(self.settings), "space": text}
        record_study(self.folder, cells, sign=sign, **sections)

    def read_result(self) -> dict[str, Any]:
        """The status, the winner and the confirmed trials; {} if there is no file."""
        path = self.result
        result = read_json(path, REMEDY_OF_RESULT)
        check_fields(path, result, _RESULT_FIELDS, REMEDY_OF_RESULT)
        return result

    def make_cell(self, folder: Path, sets: Sequence[str], *seeds: int) -> Cell:
        """The cell of a trial, with the settings for it.

        `seeds` are the first one and their number, by default those of the settings.
        Those of a confirmation are no further seeds of its trial, which was chosen by
        its own: it is another group.
        """
        values = {key: value for key, _, value in (s.partition("=") for s in sets)}
        values |= {"confirmed": "yes"} if seeds else {}
        settings = self.settings
        first, count = seeds or (settings.seed, settings.seeds)
        own = f"train.seed={first}", f"train.seeds={count}"
        sets = (*settings.set, *sets, *own)
        recipe, digest = settings.recipe, settings.digest
        return Cell(folder, self.folder, recipe, digest, sets, values)

    def load_recipe(self, sets: Sequence[str] = ()) -> Recipe:
        """The recipe of the sweep, with the settings of a trial."""
        document = read_cell(self.make_cell(self.trial(0), sets))
        return load_to_train(document, trust=self.admits_code)


BOUNDS: Mapping[str, tuple[int, int]] = {  # of the options that are numbers
    "trials": (1, MOST_COMBINATIONS),
    "seeds": (1, 1_000_000),
    "seed": (0, 2**31 - 1),
    "confirm": (0, 1_000_000),
    "confirm_seeds": (1, 1_000_000),
    "together": (1, MOST_COMBINATIONS),
    "ready": (1, 1_000_000),
}
_FIELDS: Mapping[str, predicates.Predicate] = {  # those of `Settings`, and the space
    **dict.fromkeys(
        (each.name for each in dataclasses.fields(Settings)), predicates.is_word
    ),
    **dict.fromkeys(BOUNDS, predicates.is_int),
    **dict.fromkeys(("together", "ready"), predicates.or_none(predicates.is_int)),
    "recipe": is_recipe,
    "space": predicates.is_word,
    "set": predicates.list_of(predicates.is_word),
    "storage": predicates.or_none(predicates.is_word),
}
_ENTRY = {"trial", "options", "run", "trial_value", "value", "ci95", "seeds"}


def _is_entry(value: Any) -> bool:
    """Whether a value is a trial in the result of a sweep; see `TrialSource`."""
    if not isinstance(value, dict) or not value.keys() >= _ENTRY:
        return False
    trial = value["trial"]
    return (
        predicates.is_int(trial)
        and trial >= 0
        and value["run"] in [f"{each}/{trial:04d}" for each in _RUNS]
        and predicates.is_mapping(value["options"])
        and predicates.list_of(_is_value)([value["value"], value["trial_value"]])
        and predicates.or_none(predicates.list_of(_is_value))(value["seeds"])
        and predicates.or_none(predicates.list_of(_is_value, 2))(value["ci95"])
    )


_is_value = predicates.or_none(predicates.is_number)  # null if it is not finite
REMEDY_OF_RESULT = "remove it: `--resume` writes it again"
_RESULT_FIELDS: Mapping[str, predicates.Predicate] = {
    "status": lambda value: value in ["running", "killed", *EXIT_CODES],
    "winner": predicates.or_none(
        lambda value: _is_entry(value) and predicates.is_number(value["value"])
    ),
    "confirmed": predicates.list_of(_is_entry),
}


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep."""
    try:
        study = find_study(folder)
    except RlcliError:
        return False
    return study is not None and SEARCH in study.sections


def open_sweep(folder: str | Path, *, trust: bool | None = None) -> Sweep:
    """Opens a sweep that may come from elsewhere; refuses one that is damaged.

    `trust`: whether its recipe may import code, and its trackers may contact a host; by
    default if it is the user's own, or in a folder that the user trusts.
    """
    opened = OpenedFolder(Path(folder), trust)
    if SEARCH not in opened.read_study().sections:
        raise RlcliError(
            f"{quote(folder)} is not the folder of a sweep",
            "`rlcli sweep RECIPE --space FILE` starts one",
        )
    search = opened.read_section(SEARCH, _FIELDS)
    opened.refuse_links(*FOLDERS)
    try:
        check_options({key: each for key, each in search.items() if each is not None})
    except RlcliError as error:
        message = f"`{opened.record}`: {error.message}"
        raise RlcliError(message, error.hint) from error
    chosen: dict[str, Any] = {name: search[name] for name in _FIELDS}
    text, chosen["set"] = chosen.pop("space"), tuple(chosen["set"])
    document = load_document(text, source=str(opened.record), example=REMEDY)
    space = read_space(dataclasses.replace(document, marks={}))
    return Sweep(Path(folder), trust, settings=Settings(**chosen), space=space)


def check_options(given: Mapping[str, Any]) -> None:
    """Refuses options of a sweep that cannot be; reads no file."""
    check_choice("sampler", given.get("sampler", Settings.sampler), SAMPLERS)
    check_choice("pruner", given.get("pruner", Settings.pruner), PRUNERS)
    parse_objective(given.get("objective", Settings.objective))
    for name, (least, most) in BOUNDS.items():
        if name in given and not least <= given[name] <= most:
            expected = f"≥ {least}" if given[name] < least else f"≤ {most:,}"
            raise RlcliError(f"`{name}` cannot be {given[name]}: expected {expected}")
    _check_population(given)


def _check_population(given: Mapping[str, Any]) -> None:
    """Refuses options of a sweep that a population does not have, and the reverse."""
    if given.get("sampler") != PBT:
        if "ready" in given:
            raise RlcliError("`ready` is an option of `--sampler pbt`")
        return
    reasons = {
        "pruner": ("none", "the worst members copy the best ones instead of ending"),
        "objective": ("return", "members are compared by their last evaluation"),
    }
    for name, (only, reason) in reasons.items():
        if given.get(name, only) != only:
            raise RlcliError(
                f"`--sampler pbt` has no `{name}` {quote(given[name])}: {reason}",
                f"leave `--{name}` out",
            )
    trials = given.get("trials", MEMBERS)
    if trials < 2:
        raise RlcliError("a population needs at least two trials")
    if given.get("together", trials) != trials:
        raise RlcliError(
            "`--sampler pbt` has no `together`: a population is one program",
            "leave `--together` out",
        )


def create_sweep(sweep: Sweep, cells: Sequence[Cell] = (), **sections: Any) -> None:
    """Creates the folder of a planned sweep; refuses one that exists.

    A folder with `trust` is signed: the recipe that the user has named needs it.
    """
    try:
        sweep.folder.mkdir(parents=True)
    except FileExistsError as error:
        raise RlcliError(
            f"`{sweep.folder}` exists already",
            "`--resume` continues a sweep, `--run` or `--name` choose another folder",
        ) from error
    sweep.write_settings(cells, sign=sweep.trust, **sections)


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
