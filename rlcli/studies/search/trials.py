"""Trials: the trials of a sweep in Optuna's storage; samplers and pruners.

Optuna is imported when a study is opened. Its storage is the only record of trials, so
a sweep continues from it, whichever process was killed and when.
"""

import contextlib
import math
import urllib.parse
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlcli.errors import RlcliError, quote, shorten
from rlcli.registry.libraries import import_library, require_extra
from rlcli.runs import predicates
from rlcli.runs.files import to_json
from rlcli.studies.search.journal import REMEDY, Journal
from rlcli.studies.search.layout import PBT, Sweep
from rlcli.studies.search.objectives import Objective, parse_objective
from rlcli.studies.search.space import CHOICE, Option, Values

EXTRA = "sweep"
REDUCTION = 3  # ASHA continues one trial of so many at each rung
_MEDIAN_STARTUP = 5  # trials that are never pruned, by the pruner `median`
_STATES = {  # by their names in Optuna
    "FAIL": "failed",
    **{name: name.lower() for name in ("RUNNING", "COMPLETE", "PRUNED", "WAITING")},
}
_NOTES: Mapping[str, predicates.Predicate] = {
    "seeds": predicates.list_of(predicates.is_number),
    "ci95": predicates.or_none(predicates.list_of(predicates.is_number, 2)),
    "reason": predicates.is_text,
    "pruned_at": predicates.is_int,
}


class Trial(NamedTuple):
    """A trial of the storage."""

    number: int
    state: str  # a value of `_STATES`
    values: Values  # the options that were chosen
    value: float | None  # the objective, if it is complete
    rungs: dict[int, float]  # the objective so far, by step
    notes: dict[str, Any]  # see `_NOTES`
    seconds: float | None = None  # from its begin to its end


def require_optuna() -> None:
    """An error that says how to install Optuna, unless it is."""
    require_extra(EXTRA, "`rlcli sweep`")


def fixed_values(sweep: Sweep, number: int) -> Values | None:
    """The values of a trial if they depend on its number only, otherwise None."""
    settings, space = sweep.settings, sweep.space
    if settings.sampler == "grid":
        return space.grid()[number]
    if settings.sampler in ("random", PBT):
        return space.draw(settings.seed, number)
    return None


class Trials:
    """The trials of a sweep.

    `first_rung` is the step of the first evaluation, at which trials are compared.
    `is_reader`: the study is only read, while another process may continue it.
    """

    def __init__(
        self, sweep: Sweep, first_rung: int = 1, *, is_reader: bool = False
    ) -> None:
        require_optuna()
        self._optuna: Any = import_library("optuna", EXTRA)
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        self._sweep, self._space, self._settings = sweep, sweep.space, sweep.settings
        self._known = {option.key: option for option in sweep.space.options}
        self._live: dict[int, Any] = {}  # Optuna's objects of running trials
        self._journal: Journal | None = None
        if self._settings.storage is None:
            self._journal = Journal(sweep.journal, is_reader=is_reader)
        with self._explain_errors():
            self._study = self._open(is_reader)
            self._study.pruner = self._pruner(first_rung)

    def _open(self, is_reader: bool) -> Any:
        optuna, settings = self._optuna, self._settings
        if self._journal is not None:
            storage = self._read_journal(self._journal)
        else:
            assert settings.storage is not None
            storage = open_database(settings.storage, is_reader=is_reader)
            if is_reader:
                return self._find_study(storage)
        is_maximized = parse_objective(settings.objective).is_maximized
        return optuna.create_study(
            storage=storage,
            study_name=settings.study,
            direction="maximize" if is_maximized else "minimize",
            load_if_exists=True,
        )

    def _read_journal(self, journal: Journal) -> Any:
        try:
            return self._optuna.storages.JournalStorage(journal)
        except RlcliError:
            raise
        except Exception as error:  # of many types: values that Optuna refuses
            raise journal.damage(_describe(error)) from error

    def _find_study(self, storage: Any) -> Any:
        """The study in a database that is only read."""
        name = self._settings.study
        try:
            return self._optuna.load_study(study_name=name, storage=storage)
        except KeyError as error:
            raise RlcliError(
                f"the storage {quote(self._settings.storage)} has no trials of this "
                "sweep",
                "pass the `--storage` with which the sweep was started",
            ) from error

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Context that explains errors of Optuna, and hides its warnings.

        Its samplers and pruners expect trials that they have written themselves, but
        others may have changed the journal or the database.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # options of samplers are experimental
            try:
                yield
            except RlcliError:
                raise
            except Exception as error:
                raise self._damage(_describe(error)) from error

    def _damage(self, reason: str) -> RlcliError:
        """The error that trials cannot be used."""
        place = quote(self._settings.storage or "", 200)
        if self._journal is not None:
            place = f"`{self._journal.path}`"
        return RlcliError(f"{place} has trials that cannot be used: {reason}", REMEDY)

    def _pruner(self, first_rung: int) -> Any:
        pruners = self._optuna.pruners
        if self._settings.pruner == "asha":
            return pruners.SuccessiveHalvingPruner(
                min_resource=first_rung, reduction_factor=REDUCTION
            )
        if self._settings.pruner == "median":
            return pruners.MedianPruner(n_startup_trials=_MEDIAN_STARTUP)
        return pruners.NopPruner()

    def _sampler(self, number: int) -> Any:
        """A sampler for one trial, seeded by its number: a crash loses no state."""
        samplers, seed = self._optuna.samplers, self._seed(number)
        if self._settings.sampler == "tpe":
            return samplers.TPESampler(
                seed=seed, multivariate=True, group=True, constant_liar=True
            )
        if self._settings.sampler == "nsga2":
            return samplers.NSGAIISampler(seed=seed)
        return samplers.RandomSampler(seed=seed)  # of what `_choose` leaves

    def _seed(self, number: int) -> int:
        entropy = np.random.SeedSequence([self._settings.seed, number])
        return int(entropy.generate_state(1)[0])

    def _choose(self, number: int) -> tuple[Values | None, dict[str, int]]:
        """The values of a trial that are not left to Optuna, and its attributes."""
        if self._settings.sampler != "cmaes":
            return fixed_values(self._sweep, number), {}
        import_library("cmaes", EXTRA)
        from rlcli.studies.search.cmaes_sampler import choose_numbers

        complete, seed = self._select("COMPLETE"), self._seed(number)
        is_maximized = self._study.direction.name == "MAXIMIZE"
        return choose_numbers(self._space, complete, seed, is_maximized=is_maximized)

    def _select(self, state: str) -> list[Any]:
        """Optuna's trials of a state, in the order of their numbers."""
        states = (self._optuna.trial.TrialState[state],)
        return self._study.get_trials(deepcopy=False, states=states)

    def ask(self) -> Trial:
        """Begins the next trial."""
        with self._explain_errors():
            number = len(self._study.get_trials(deepcopy=False))
            if waiting := self._select("WAITING"):
                # Of a process that was killed before it began the trial.
                number = waiting[0].number
            else:
                values, attributes = self._choose(number)
                if values:
                    self._study.enqueue_trial(values, attributes)
            self._study.sampler = self._sampler(number)
            return self._begin(self._study.ask())

    def restore_running(self) -> list[Trial]:
        """The trials that were running when an earlier process ended."""
        found = []
        with self._explain_errors():
            for frozen in self._select("RUNNING"):
                self._study.sampler = self._sampler(frozen.number)
                trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
                found.append(self._begin(trial))
        return found

    def _begin(self, trial: Any) -> Trial:
        """Chooses the options that have no value yet."""
        values = self._space.fill(lambda option: self._suggest(trial, option))
        self._live[trial.number] = trial
        frozen = self._study.get_trials(deepcopy=False)[trial.number]
        return self._read(frozen)._replace(values=values)

    def _suggest(self, trial: Any, option: Option) -> Any:
        """The value of an option, which is chosen unless the trial has one."""
        if option.kind == CHOICE:
            value = trial.suggest_categorical(option.key, option.choices)
        elif option.kind == "int":
            low, high = int(option.low), int(option.high)
            step = {} if option.log else {"step": option.step}
            value = trial.suggest_int(option.key, low, high, log=option.log, **step)
        else:
            value = trial.suggest_float(
                option.key, option.low, option.high, log=option.is_log
            )
        self._check_value(trial.number, option.key, value)
        return value

    def _check_value(self, number: int, key: str, value: Any) -> None:
        """Refuses a value that the space does not have: it becomes a `--set`."""
        if key not in self._known or not self._known[key].contains(value):
            text = quote(f"{key}={value}")
            raise self._damage(f"trial {number} has {text}, which the space has not")

    def _read(self, trial: Any) -> Trial:
        """A trial of Optuna, which others may have written."""
        if type(trial.number) is not int or trial.number < 0:
            raise self._damage(f"a trial has the number {quote(trial.number)}")
        for key, value in trial.params.items():
            self._check_value(trial.number, key, value)
        attributes = trial.user_attrs
        notes = {name: attributes[name] for name in _NOTES if name in attributes}
        for name, value in notes.items():
            if not _NOTES[name](value):
                text = f"trial {trial.number} has the note {quote(name)}"
                raise self._damage(f"{text}: {quote(to_json(value))}")
        return Trial(
            trial.number,
            _STATES[trial.state.name],
            dict(trial.params),
            None if trial.value is None else float(trial.value),
            {int(step): float(v) for step, v in trial.intermediate_values.items()},
            notes,
            None if trial.duration is None else trial.duration.total_seconds(),
        )

    def report(self, number: int, step: int, value: float) -> bool:
        """Records the objective so far; returns whether the trial should be pruned."""
        with self._explain_errors():
            self._live[number].report(value, step)
            return bool(self._live[number].should_prune())

    def end(
        self, number: int, state: str, value: float | None = None, **notes: Any
    ) -> None:
        """Ends a trial as `complete` with its value, `pruned` or `failed`."""
        names = {state: name for name, state in _STATES.items()}
        trial = self._live.pop(number)
        with self._explain_errors():
            for name, note in notes.items():
                trial.set_user_attr(name, note)
            self._study.tell(number, value, self._optuna.trial.TrialState[names[state]])

    def trials(self) -> list[Trial]:
        """All trials by their numbers."""
        with self._explain_errors():
            return [*map(self._read, self._study.get_trials(deepcopy=False))]

    def importance(self) -> dict[str, float]:
        """How much of the variation between good trials each option explains.

        PED-ANOVA (Watanabe et al., 2023), https://arxiv.org/abs/2304.10255; {} with
        fewer than two different results. Options that not every trial has are left out,
        and {} for a population, whose options change.
        """
        values = {each.value for each in self.trials() if each.state == "complete"}
        if self._settings.sampler == PBT or len(values) < 2:
            return {}
        importance = self._optuna.importance
        with self._explain_errors(), contextlib.suppress(RuntimeError, ValueError):
            evaluator = importance.PedAnovaImportanceEvaluator()
            found = importance.get_param_importances(self._study, evaluator=evaluator)
            return {key: float(value) for key, value in found.items()}
        return {}


def open_database(url: str, *, is_reader: bool = False) -> Any:
    """Optuna's storage in a database; an `RlcliError` if it cannot be opened.

    `is_reader`: creates no tables, and opens the file of SQLite read-only.
    """
    optuna: Any = import_library("optuna", EXTRA)
    errors: Any = import_library("sqlalchemy.exc", EXTRA)  # Optuna brings it
    failures = errors.SQLAlchemyError, optuna.exceptions.OptunaError, ImportError
    try:
        if not is_reader:
            return optuna.storages.RDBStorage(url)
        return optuna.storages.RDBStorage(_read_only(url), skip_table_creation=True)
    except failures as error:
        reason = _describe(error.__cause__ or error)
        raise RlcliError(
            f"the storage {quote(url, 200)} cannot be opened: {reason}",
            "for example `--storage sqlite:///sweeps.db`",
        ) from error


def _read_only(url: str) -> str:
    """The URL with which SQLite opens its file read-only; other URLs as they are."""
    parsed = import_library("sqlalchemy.engine", EXTRA).make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return url
    if not parsed.database.startswith("file:"):
        path = urllib.parse.quote(str(Path(parsed.database).absolute()))
        parsed = parsed.set(database=f"file:{path}")
    options = {**parsed.query, "mode": "ro", "uri": "true"}
    return parsed.set(query=options).render_as_string(hide_password=False)


def _describe(error: BaseException) -> str:
    """An error of Optuna in a line."""
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {shorten(text, 200)}" if text else repr(error)


def rank(trials: Sequence[Trial], objective: Objective) -> list[Trial]:
    """The complete trials with a finite value, best first."""
    sign = -1 if objective.is_maximized else 1
    complete = [
        (sign * trial.value, trial.number, trial)
        for trial in trials
        if trial.state == "complete"
        and trial.value is not None
        and math.isfinite(trial.value)
    ]
    return [trial for *_, trial in sorted(complete, key=lambda each: each[:2])]
