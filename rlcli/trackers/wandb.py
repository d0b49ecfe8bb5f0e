"""Weights & Biases (W&B)."""

import itertools
import os
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Literal

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.registry.libraries import import_library, require_extra
from rlcli.trackers import Record, TrackedRun, Tracker, prefix

Mode = Literal["online", "offline", "disabled"]


@registry.register("tracker")
def wandb(
    *,
    project: str = "rlcli",
    entity: str | None = None,
    group: str | None = None,
    mode: Mode | None = None,
) -> Tracker:
    """Weights & Biases (W&B): logs to its server, or offline (needs the extra).

    A run is one run of W&B, with the recipe as its configuration. The metrics of
    several seeds are the means over the seeds; those of a seed are named `seed_0/…`.
    `group` is by default the name of the recipe. `mode` is by default the environment
    variable `WANDB_MODE`, else `online`; `offline` writes into `<run>/wandb`, which
    `wandb sync` uploads.
    """
    require_extra("wandb", "tracker `wandb`")
    _require_login(mode or os.environ.get("WANDB_MODE", "online"))

    def start(run: TrackedRun) -> Any:
        library = import_library("wandb", "wandb")
        return library.init(
            project=project,
            entity=entity,
            group=group or run.name.partition("/")[0],
            name=run.name,
            id=run.id,
            resume="allow",
            reinit="create_new",  # leaves a run that the caller has begun as it is
            mode=mode,
            dir=str(run.folder),
            config=dict(run.recipe),
            tags=run.tags,
            # The terminal belongs to the monitor.
            settings=library.Settings(silent=True, console="off"),
        )

    return Tracker(start, _log, _finish)


def _require_login(mode: str) -> None:
    """Refuses to log online without an API key, before W&B asks for one."""
    if mode != "online":
        return
    library = import_library("wandb", "wandb")
    if not library.login(prompt=False, verify=False):
        raise RlcliError(
            "tracker `wandb`: W&B has no API key",
            "run `wandb login`, or log offline: set `WANDB_MODE=offline`",
        )


def _log(run: Any, records: Sequence[Record]) -> None:
    library = import_library("wandb", "wandb")
    for step, group in itertools.groupby(records, attrgetter("step")):
        row: dict[str, Any] = {}
        for record in group:
            start = prefix(record)
            row |= {start + name: value for name, value in record.scalars.items()}
            for name, values in record.histograms.items():
                row[start + name] = library.Histogram(values)
            for name, film in record.films.items():
                row[start + name] = library.Video(str(film), format="gif")
        run.log(row, step=step)


def _finish(run: Any, status: str) -> None:
    run.summary["status"] = status
    run.finish(exit_code=int(status == "failed"))
