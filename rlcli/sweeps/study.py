"""Study: the trials of a sweep in Optuna's storage; samplers and pruners.

Optuna is imported when a study is opened. Its storage is the only record of trials, so
a sweep continues from it, whichever process was killed and when.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rlcli.errors import RlcliError, quote
from rlcli.registry.libraries import import_library, require_extra
from rlcli.sweeps.layout import Settings, SweepFolder
from rlcli.sweeps.objectives import parse_objective
from rlcli.sweeps.pbt import PBT
from rlcli.sweeps.space import CHOICE, Option, Space, Values

SAMPLERS = ("tpe", "random", "grid", "cmaes", "nsga2", PBT)
PRUNERS = ("asha", "median", "none")
EXTRA = "sweep"
REDUCTION = 3  # ASHA continues one trial of so many at each rung
_MEDIAN_STARTUP = 5  # trials that are never pruned, by the pruner `median`
_STALE_LOCK = 2.0  # seconds after which a lock of the journal has no owner any more
_STATES = {
    "RUNNING": "running",
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "FAIL": "failed",
    "WAITING": "waiting",
}


class Trial(NamedTuple):
    """A trial of the storage."""

    number: int
    state: str  # a value of `_STATES`
    values: Values  # the options that were chosen
    value: float | None  # the objective, if it is complete
    rungs: dict[int, float]  # the objective so far, by step
    notes: dict[str, Any]  # `seeds`, `ci95`, `seconds`, `reason`, `pruned_at`


def require_optuna() -> None:
    """An error that says how to install Optuna, unless it is."""
    require_extra(EXTRA, "`rlcli sweep`")


def fixed_values(settings: Settings, space: Space, number: int) -> Values | None:
    """The values of a trial if they depend on its number only, otherwise None."""
    if settings.sampler == "grid":
        return space.grid()[number]
    if settings.sampler in ("random", PBT):
        return space.draw(settings.seed, number)
    return None


class Study:
    """The trials of a sweep.

    `first_rung` is the step of the first evaluation, at which trials are compared.
    `is_reader`: the study is only read, while another process may continue it.
    """

    def __init__(
        self,
        sweep: SweepFolder,
        settings: Settings,
        space: Space,
        first_rung: int = 1,
        *,
        is_reader: bool = False,
    ) -> None:
        require_optuna()
        self._optuna: Any = import_library("optuna", EXTRA)
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        self._space = space
        self._settings = settings
        self._live: dict[int, Any] = {}  # Optuna's objects of running trials
        if settings.storage is None and not is_reader:
            _mend_journal(sweep)
        with _ignore_warnings():
            self._study = self._open(sweep, is_reader)
        self._study.pruner = self._pruner(first_rung)

    def _open(self, sweep: SweepFolder, is_reader: bool) -> Any:
        optuna, settings = self._optuna, self._settings
        if settings.storage is None:
            if is_reader and not sweep.journal.exists():
                raise RlcliError(
                    f"`{sweep.journal}` is missing: it stores the trials",
                    "restore the file; `--resume` without it starts all trials again",
                )
            # Its lock is a link to this path, which has to hold from any folder.
            path = str(sweep.journal.absolute())
            backend = optuna.storages.journal.JournalFileBackend(path)
            storage = optuna.storages.JournalStorage(backend)
        else:
            storage = open_database(settings.storage)
        is_maximized = parse_objective(settings.objective).is_maximized
        return optuna.create_study(
            storage=storage,
            study_name=settings.study,
            direction="maximize" if is_maximized else "minimize",
            load_if_exists=True,
        )

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
        samplers, kind = self._optuna.samplers, self._settings.sampler
        entropy = np.random.SeedSequence([self._settings.seed, number])
        seed = int(entropy.generate_state(1)[0])
        if kind == "tpe":
            return samplers.TPESampler(
                seed=seed, multivariate=True, group=True, constant_liar=True
            )
        if kind == "cmaes":
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        if kind == "nsga2":
            return samplers.NSGAIISampler(seed=seed)
        return samplers.RandomSampler(seed=seed)  # `fixed_values` has chosen before

    def ask(self) -> Trial:
        """Begins the next trial."""
        with _ignore_warnings():
            number = len(self._study.get_trials(deepcopy=False))
            waiting = self._study.get_trials(deepcopy=False, states=(self._waiting,))
            if waiting:  # of a process that was killed before it began the trial
                number = waiting[0].number
            elif (
                values := fixed_values(self._settings, self._space, number)
            ) is not None:
                self._study.enqueue_trial(values)
            self._study.sampler = self._sampler(number)
            return self._begin(self._study.ask())

    def restore_running(self) -> list[Trial]:
        """The trials that were running when an earlier process ended."""
        state = self._optuna.trial.TrialState.RUNNING
        found = []
        with _ignore_warnings():
            for frozen in self._study.get_trials(deepcopy=False, states=(state,)):
                self._study.sampler = self._sampler(frozen.number)
                trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
                found.append(self._begin(trial))
        return found

    def _begin(self, trial: Any) -> Trial:
        """Chooses the options that have no value yet."""
        values: Values = {}
        for option in self._space.options:
            if option.is_active(values):
                values[option.key] = _suggest(trial, option)
        self._live[trial.number] = trial
        return self.find(trial.number)._replace(values=values)

    def report(self, number: int, step: int, value: float) -> bool:
        """Records the objective so far; returns whether the trial should be pruned."""
        with _ignore_warnings():
            self._live[number].report(value, step)
            return bool(self._live[number].should_prune())

    def note(self, number: int, **notes: Any) -> None:
        """Sets notes of a running trial."""
        for name, value in notes.items():
            self._live[number].set_user_attr(name, value)

    def end(self, number: int, state: str, value: float | None = None) -> None:
        """Ends a trial as `complete` with its value, `pruned` or `failed`."""
        names = {state: name for name, state in _STATES.items()}
        state_ = getattr(self._optuna.trial.TrialState, names[state])
        with _ignore_warnings():
            self._study.tell(number, value, state_)
        del self._live[number]

    def trials(self) -> list[Trial]:
        """All trials by their numbers."""
        return [_read(each) for each in self._study.get_trials(deepcopy=False)]

    def find(self, number: int) -> Trial:
        """The trial of a number."""
        return _read(self._study.get_trials(deepcopy=False)[number])

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
        with _ignore_warnings(), contextlib.suppress(RuntimeError, ValueError):
            evaluator = importance.PedAnovaImportanceEvaluator()
            found = importance.get_param_importances(self._study, evaluator=evaluator)
            return {key: float(value) for key, value in found.items()}
        return {}

    @property
    def _waiting(self) -> Any:
        return self._optuna.trial.TrialState.WAITING


def _suggest(trial: Any, option: Option) -> Any:
    if option.kind == CHOICE:
        return trial.suggest_categorical(option.key, option.choices)
    if option.kind == "int":
        low, high = int(option.low), int(option.high)
        step = {} if option.log else {"step": option.step}
        return trial.suggest_int(option.key, low, high, log=option.log, **step)
    return trial.suggest_float(option.key, option.low, option.high, log=option.is_log)


def _read(trial: Any) -> Trial:
    return Trial(
        trial.number,
        _STATES[trial.state.name],
        dict(trial.params),
        None if trial.value is None else float(trial.value),
        {int(step): float(each) for step, each in trial.intermediate_values.items()},
        dict(trial.user_attrs),
    )


def _mend_journal(sweep: SweepFolder) -> None:
    """Removes what a killed process leaves: half a line, and a lock."""
    lock = sweep.journal.with_name(f"{sweep.journal.name}.lock")
    with contextlib.suppress(FileNotFoundError):
        if time.time() - lock.lstat().st_mtime > _STALE_LOCK:
            lock.unlink()
    if not sweep.journal.exists():
        return
    with sweep.journal.open("r+b") as file:
        data = file.read()
        end = data.rfind(b"\n") + 1
        if end < len(data):
            file.truncate(end)
            os.fsync(file.fileno())


def open_database(url: str) -> Any:
    """Optuna's storage in a database; an `RlcliError` if it cannot be opened."""
    optuna: Any = import_library("optuna", EXTRA)
    errors: Any = import_library("sqlalchemy.exc", EXTRA)  # Optuna brings it
    try:
        return optuna.storages.RDBStorage(url)
    except (errors.SQLAlchemyError, ImportError) as error:
        raise RlcliError(
            f"the storage {quote(url)} cannot be opened: {error}",
            "for example `--storage sqlite:///sweeps.db`",
        ) from error


@contextlib.contextmanager
def _ignore_warnings() -> Iterator[None]:
    """Optuna warns that options of its samplers are experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
