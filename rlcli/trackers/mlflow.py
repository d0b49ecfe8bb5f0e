"""MLflow."""

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.registry.libraries import import_library, require_extra
from rlcli.registry.paths import enter_url
from rlcli.trackers import Record, TrackedRun, Tracker, flatten_recipe, prefix

FILE = "mlflow.db"  # beside the run, as the folder of its artifacts
ARTIFACTS = "mlartifacts"
_ID = "rlcli.id"  # the tag by which a resume finds the run
_BATCH = 1_000  # metrics in a request, at most
_PARAMETERS = 100  # parameters in a request, at most
_LONGEST = 6_000  # characters of a parameter
_REFUSED = re.compile(r"[^\w\-. :/]")  # in the name of a metric
_STATUSES = {"finished": "FINISHED", "failed": "FAILED"}


class _Session(NamedTuple):
    """A connection to a run of MLflow."""

    client: Any
    run_id: str


@registry.register("tracker")
def mlflow(*, uri: str | None = None, experiment: str | None = None) -> Tracker:
    """MLflow: logs to a server, or to a file beside the run (needs the extra).

    A run is one run of MLflow, with the recipe as its parameters. The metrics of
    several seeds are the means over the seeds; those of a seed are named `seed_0/…`.
    `uri` is by default the environment variable `MLFLOW_TRACKING_URI`, else the SQLite
    file `mlflow.db` in the folder that contains the run. `experiment` is by default the
    name of the recipe. MLflow has no histograms.
    """
    require_extra("mlflow", "tracker `mlflow`")

    def start(run: TrackedRun) -> _Session:
        library = import_library("mlflow.tracking", "mlflow")
        for name in ("mlflow", "alembic"):  # the terminal belongs to the monitor
            logging.getLogger(name).setLevel(logging.WARNING)
        given = enter_url(uri or os.environ.get("MLFLOW_TRACKING_URI", ""))
        beside = run.folder.absolute().parent
        for path in () if given else (beside / FILE, beside / ARTIFACTS):
            if path.is_symlink():
                raise RlcliError(
                    f"`{path}` is a symbolic link, which rlcli does not follow",
                    "replace the link with what it points to, or set the option `uri`",
                )
        client = library.MlflowClient(
            tracking_uri=given or f"sqlite:///{beside / FILE}"
        )
        name = experiment or run.name.partition("/")[0]
        artifacts = None if given else str(beside / ARTIFACTS)
        experiment_id = _find_experiment(client, name, artifacts)
        return _continue_run(client, experiment_id, run) or _create_run(
            client, experiment_id, run
        )

    return Tracker(start, _log, _finish, takes_histograms=False)


def _find_experiment(client: Any, name: str, artifacts: str | None) -> str:
    """The id of the experiment of that name, which is created if there is none."""
    found = client.get_experiment_by_name(name)
    if found is None:
        with contextlib.suppress(import_library("mlflow", "mlflow").MlflowException):
            return client.create_experiment(name, artifact_location=artifacts)
        found = client.get_experiment_by_name(name)  # another run has just created it
    return found.experiment_id


def _continue_run(client: Any, experiment_id: str, run: TrackedRun) -> _Session | None:
    """The run of MLflow that this run began before it was resumed."""
    found = client.search_runs([experiment_id], f"tags.`{_ID}` = '{run.id}'")
    if not found:
        return None
    client.update_run(found[0].info.run_id, status="RUNNING")
    return _Session(client, found[0].info.run_id)


def _create_run(client: Any, experiment_id: str, run: TrackedRun) -> _Session:
    entities = import_library("mlflow.entities", "mlflow")
    tags = {_ID: run.id, **dict.fromkeys(run.tags, "true")}
    run_id = client.create_run(experiment_id, tags=tags, run_name=run.name).info.run_id
    parameters = [
        entities.Param(key, str(value)[:_LONGEST])
        for key, value in flatten_recipe(run.recipe).items()
    ]
    for first in range(0, len(parameters), _PARAMETERS):
        client.log_batch(run_id, params=parameters[first : first + _PARAMETERS])
    return _Session(client, run_id)


def _log(session: _Session, records: Sequence[Record]) -> None:
    metrics = [*_metrics(records)]
    for first in range(0, len(metrics), _BATCH):
        session.client.log_batch(
            session.run_id, metrics=metrics[first : first + _BATCH]
        )
    for record in records:
        for name, film in record.films.items():
            folder = f"{prefix(record)}{name}"
            session.client.log_artifact(session.run_id, str(film), folder)


def _metrics(records: Sequence[Record]) -> Iterator[Any]:
    entities = import_library("mlflow.entities", "mlflow")
    for record in records:
        milliseconds = int(1_000 * record.time)
        for name, value in record.scalars.items():
            key = _REFUSED.sub("_", f"{prefix(record)}{name}")
            yield entities.Metric(key, value, milliseconds, record.step)


def _finish(session: _Session, status: str) -> None:
    client, run_id = session
    client.set_tag(run_id, "status", status)
    client.set_terminated(run_id, _STATUSES.get(status, "KILLED"))
