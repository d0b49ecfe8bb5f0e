"""SLURM: the trials of a sweep as the tasks of a job array, on a SLURM cluster.

The script of the array trains one trial per task. It is for samplers whose trials
depend on their numbers only, so no process has to decide between trials. `--resume`
then reads the runs, confirms the best ones and names the winner.
"""

import math
import re
import signal
import time
from pathlib import Path

from rlcli.errors import RlcliError, quote
from rlcli.quoting import join_shell, quote_slurm
from rlcli.registry.user_code import module_command
from rlcli.runs.durations import max_time_arguments, parse_duration
from rlcli.runs.files import check_output, write_output
from rlcli.studies.engines.jobs import SIGNALLED, JobQueue, LocalEngine
from rlcli.studies.search import layout
from rlcli.studies.search.grouping import make_job
from rlcli.studies.search.layout import Settings, SweepFolder
from rlcli.studies.search.opening import open_sweep
from rlcli.studies.search.trials import fixed_values
from rlcli.training.stopping.signals import SignalReceiver
from rlcli.training.stopping.stops import STATUS_OF_SIGNALS

_GRACE = 120  # seconds before the limit of time at which SLURM sends TERM

# The shell receives the signals, because it has to queue the task again afterwards.
_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
#SBATCH --output={logs}
#SBATCH --open-mode=append
#SBATCH --cpus-per-task=1
#SBATCH --signal=B:TERM@{grace}
#SBATCH --requeue
# Options of your cluster, such as --time, --partition, --gres and --account, are lines
# here or arguments of sbatch.

# A task trains one trial. After a signal, such as that of the limit of time or of a
# preemption, it saves a checkpoint and is queued again, to continue from there.
{command} --trial "$SLURM_ARRAY_TASK_ID" &
trial=$!
trap 'kill -TERM "$trial"' TERM
while true; do
    wait "$trial"
    code=$?
    kill -0 "$trial" 2>/dev/null || break
done
if [ "$code" -eq 75 ] || [ "$code" -eq 143 ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit "$code"
"""


def check_settings(settings: Settings) -> None:
    """Refuses a sampler whose trials depend on others, and a storage of runs."""
    if not settings.has_independent_trials:
        raise RlcliError(
            f"a job array cannot have the sampler `{settings.sampler}`, which chooses "
            "trials by the results of others",
            "pass `--sampler random` or `grid`, or use `--engine ray` on the cluster",
        )
    if settings.run_storage is not None:
        raise RlcliError(
            "a job array cannot have `--run-storage`: its tasks share the sweep's "
            "folder",
            "leave `--run-storage` out, or use `--engine ray` on the cluster",
        )


def check_script(file: str | Path) -> None:
    """Refuses a file that cannot be written."""
    check_output(Path(file), "a script", (".sh", ".slurm", ".sbatch"))


def write_script(
    sweep: SweepFolder,
    settings: Settings,
    file: str | Path,
    *,
    max_time: str | float | None = None,
) -> Path:
    """Writes the script of the job array; `sbatch FILE` starts it.

    `max_time`: each task stops after this time, and is queued again. A sweep that is
    resumed may have a new script, for more trials.
    """
    check_settings(settings)
    folder = sweep.folder.absolute()
    logs = sweep.make(layout.LOGS).absolute()
    words = [*module_command("rlcli"), "sweep", str(folder), "--resume"]
    words += sweep.resume_options
    if max_time is not None:
        words += max_time_arguments(parse_duration(max_time))
    text = _SCRIPT.format(
        name=quote_slurm(_job_name(folder)),
        last=settings.trials - 1,
        logs=_log_file(logs),
        grace=_GRACE,
        command=join_shell(words),
    )
    write_output(Path(file), text.encode())
    return Path(file)


def _job_name(folder: Path) -> str:
    return "rlcli-" + re.sub(r"[^\w.+-]", "_", folder.name)


def _log_file(logs: Path) -> str:
    """The value of `--output`: a pattern, in which `%a` is the number of the task."""
    pattern = str(logs).replace("%", "%%") + "/%a.log"
    try:
        if "\\" in pattern:  # then SLURM would replace no `%a`
            raise ValueError
        return quote_slurm(pattern)
    except ValueError as error:
        raise RlcliError(
            f"the folder {quote(logs.parent)} has a name that no SLURM script can "
            "contain: with a backslash or a control character",
            "choose another folder for the sweep with `--run`",
        ) from error


def train_trial(
    folder: str | Path,
    number: int,
    *,
    max_time: str | float | None = None,
    trust: bool | None = None,
) -> str:
    """Trains or resumes one trial of a sweep, and returns its run's status.

    Several processes may train trials of a sweep at once. The storage of the sweep does
    not change: `sweep(..., resume=True)` records the trials that have ended. `trust` is
    that of `sweep`.
    """
    limit = math.inf if max_time is None else parse_duration(max_time)
    deadline = time.monotonic() + limit
    sweep, settings, space = open_sweep(Path(folder).absolute(), trust=trust)
    check_settings(settings)
    if number >= settings.trials:
        raise RlcliError(
            f"`{folder}` has no trial {number}: they are 0 to {settings.trials - 1}"
        )
    values = fixed_values(settings, space, number)
    assert values is not None  # `check_settings` refuses other samplers
    job = make_job(sweep, settings, [(number, space.settings(values))])
    queue = JobQueue(LocalEngine(1))
    status = ""

    def handle(received: int) -> None:
        nonlocal status
        if (stopped := STATUS_OF_SIGNALS.get(received)) is None:
            queue.forward(received)
            return
        status = status or stopped
        queue.stop_all(received)

    with SignalReceiver(handle):
        queue.submit(job)
        try:
            while not (ends := queue.advance()) and not queue.is_empty:
                if time.monotonic() > deadline and not queue.is_stopping:
                    status = "out_of_time"
                    queue.stop_all(signal.SIGTERM)
                queue.wait()
        finally:  # after an error, the run saves a checkpoint
            queue.stop_all(signal.SIGTERM)
    if not ends:
        return status
    (end,) = ends[0].runs
    if end.status in ("failed", "crashed"):
        raise RlcliError(f"trial {number} has failed: {end.message}")
    return end.status if end.status != SIGNALLED else status
