"""Engine options: where the cells of a study are trained, as its user says it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.registry.libraries import require_extra
from rlcli.registry.paths import enter
from rlcli.results.checks import check_choice
from rlcli.runs.durations import deadline_of, parse_duration
from rlcli.runs.files import check_output, to_json
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.runs.study_record import Study
from rlcli.studies.engines import stored_runs
from rlcli.studies.engines.jobs import Engine, Job
from rlcli.studies.engines.local_engine import LocalEngine
from rlcli.studies.engines.run_storage import RunStorage, open_storage
from rlcli.studies.engines.storage_engine import StorageEngine
from rlcli.xla.threads import usable_cores

ENGINES = ("local", "ray", "slurm")
SUFFIXES = (".sh", ".slurm", ".sbatch")  # of the script of a job array
STORAGE = "run_storage"  # the section of `study.json` about a store
_STORAGE_OPTION = "--run-storage"
_OPTIONS: Mapping[str, tuple[str, ...]] = {  # and the engines that have them
    "address": ("ray",),
    "cpus": ("ray", "slurm"),
    "gpus": ("ray", "slurm"),
    "run_storage": ("ray",),
    "script": ("slurm",),
}


class EngineOptions(NamedTuple):
    """Where processes run, and how many at once; see `rlcli.study`."""

    engine: str = "local"
    jobs: int | None = None
    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    run_storage: str | None = None
    script: str | Path | None = None

    @classmethod
    def select(cls, arguments: Mapping[str, Any]) -> "EngineOptions":
        """Those among the arguments of a function, by their names."""
        return cls(**{name: arguments[name] for name in cls._fields})

    def check(self) -> None:
        """Refuses options that the engine does not have."""
        check_choice("engine", self.engine, ENGINES)
        for name, engines in _OPTIONS.items():
            is_given = getattr(self, name) != EngineOptions._field_defaults[name]
            if is_given and self.engine not in engines:
                flag = name.replace("_", "-")
                known = " or ".join(f"`--engine {each}`" for each in engines)
                raise RlcliError(
                    f"`--{flag}` is an option of {known}, not of `{self.engine}`",
                    f"leave `--{flag}` out, or choose another engine",
                )
        if self.jobs is not None and self.jobs < 1:
            raise RlcliError(f"`jobs` cannot be {self.jobs}: expected ≥ 1")
        is_sound = min(self.cpus, self.gpus) >= 0  # not NaN
        if not (is_sound and 0 < self.cpus + self.gpus < math.inf):
            raise RlcliError(
                f"a process cannot have {self.cpus:g} CPUs and {self.gpus:g} GPUs"
            )
        if self.script is not None:
            check_output(Path(self.script), "a script", SUFFIXES)
        if self.engine == "slurm" and not (
            float(self.cpus).is_integer() and float(self.gpus).is_integer()
        ):
            raise RlcliError(
                "SLURM has whole CPUs and GPUs, not "
                f"{self.cpus:g} CPUs and {self.gpus:g} GPUs"
            )
        if self.engine == "ray":
            require_extra("ray", "`--engine ray`")

    @property
    def is_array(self) -> bool:
        """Whether the script of a job array is written, and nothing trained here."""
        return self.engine == "slurm"

    def limit(self, max_time: str | float | None) -> float | None:
        """What `max_time` is: a deadline, or the seconds of each task of an array."""
        if max_time is None or not self.is_array:
            return deadline_of(max_time)
        return parse_duration(max_time)

    def begin_storage(self, title: str, folder: Path) -> dict[str, Any]:
        """The section about the store of a new study; {} without one.

        Refuses a store that cannot be used, or has a study of this name.
        """
        if self.run_storage is None:
            return {}
        name = f"{title}/{folder.name}"
        open_storage(self.run_storage, name, folder).check(is_new=True)
        return {STORAGE: {"url": self.run_storage, "name": name}}

    def find_storage(self, study: Study) -> RunStorage | None:
        """The store of a study that exists; refuses one that its user does not name."""
        fields = study.sections.get(STORAGE, {"url": None, "name": ""})
        if not _is_storage(fields):
            raise RlcliError(f"`{study.folder}` has a store {to_json(fields)[:100]}")
        OpenedFolder(study.folder).check_address(
            _STORAGE_OPTION, fields["url"], self.run_storage
        )
        if self.run_storage is None:
            return None
        storage = open_storage(self.run_storage, fields["name"], enter(study.folder))
        storage.check(is_new=False)
        return storage

    def open(
        self,
        study: Study,
        labels: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Engine:
        """The engine for a study.

        `labels` are those of cells whose runs an earlier process may have left in the
        store. `environment` are the variables of local processes, by default as many as
        cores.
        """
        storage = self.find_storage(study)
        if self.engine != "ray":
            return LocalEngine(self.jobs or usable_cores(), environment)
        from rlcli.studies.engines import ray_engine

        engine = ray_engine.RayEngine(
            self.jobs,
            address=self.address,
            cpus=self.cpus,
            gpus=self.gpus,
            storage=storage,
        )
        if storage is None:
            return engine
        stored_runs.download_runs(storage, Job(storage.folder, tuple(labels)))
        return StorageEngine(engine, storage)


def _is_storage(fields: Any) -> bool:
    """Whether a value is the section about a store; its name leads nowhere else."""
    if not isinstance(fields, dict) or not isinstance(fields.get("name"), str):
        return False
    is_url = isinstance(fields.get("url", 0), str | None)
    return is_url and ".." not in fields["name"].split("/")
