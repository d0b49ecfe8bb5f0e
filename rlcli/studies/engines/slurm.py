"""SLURM: the cells of a study as the tasks of a job array, on a SLURM cluster.

The script of the array trains the cells of one program in each task, so no process has
to decide between them. `rlcli resume` continues those that are left.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from rlcli.errors import RlcliError, quote
from rlcli.quoting import join_shell, quote_slurm
from rlcli.registry.user_code import module_command
from rlcli.runs.cell_table import ARRAY
from rlcli.runs.durations import max_time_arguments
from rlcli.runs.files import write_output
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.studies.engines.engine_options import EngineOptions

SCRIPT = "array.sh"  # in the folder of the tasks' output, unless the user names another
_GRACE = 120  # seconds before the limit of time at which SLURM sends TERM

# The shell receives the signals, because it has to queue the task again afterwards.
_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}{at_once}
#SBATCH --output={logs}
#SBATCH --open-mode=append
#SBATCH --cpus-per-task={cpus}{gpus}
#SBATCH --signal=B:TERM@{grace}
#SBATCH --requeue
# Options of your cluster, such as --time, --partition, --gres and --account, are lines
# here or arguments of sbatch.

# A task trains the cells of one program. After a signal, such as that of the limit of
# time or of a preemption, it saves a checkpoint and is queued again, to continue from
# there; after a crash, such as for lack of memory, three times.
case "$SLURM_ARRAY_TASK_ID" in
{tasks}
esac
{command} "$@" -- {folder} &
task=$!
trap 'kill -TERM "$task"' TERM
while true; do
    wait "$task"
    code=$?
    kill -0 "$task" 2>/dev/null || break
done
if [ "$code" -eq 75 ] || [ "$code" -eq 143 ] ||
    {{ [ "$code" -gt 128 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt 3 ]; }}; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit "$code"
"""


def find_script(study: Path, engine: EngineOptions) -> Path:
    """The file of the script: that of the user, or one in the study's folder."""
    if engine.script is not None:
        return Path(engine.script)
    return OpenedFolder(study).find(ARRAY, SCRIPT)


def write_script(
    study: Path,
    tasks: Sequence[Sequence[str]],
    options: Sequence[str],
    engine: EngineOptions,
    max_time: float | None = None,
) -> None:
    """Writes the script of the job array; `sbatch FILE` starts it.

    `tasks` are the names of the cells of each task, and `options` those of `rlcli
    study`. `max_time`: after so many seconds a task stops, and is queued again.
    """
    if not tasks:
        raise RlcliError(f"all cells of `{study}` have ended: there are no tasks")
    folder = study.absolute()
    logs = OpenedFolder(study).make(ARRAY).absolute()
    words = [*module_command("rlcli"), "study", "--quiet", *options]
    if max_time is not None:
        words += max_time_arguments(max_time)
    cases = []
    for number, labels in enumerate(tasks):
        names = [word for label in labels for word in ("--cell", label)]
        cases.append(f"    {number}) set -- {join_shell(names)} ;;")
    text = _SCRIPT.format(
        name=quote_slurm("rlcli-" + re.sub(r"[^\w.+-]", "_", folder.name)),
        last=len(tasks) - 1,
        at_once="" if engine.jobs is None else f"%{engine.jobs}",
        cpus=max(1, int(engine.cpus)),
        gpus=f"\n#SBATCH --gpus-per-task={engine.gpus:.0f}" if engine.gpus else "",
        logs=_log_file(logs),
        grace=_GRACE,
        tasks="\n".join(cases),
        command=join_shell(words),
        folder=join_shell([str(folder)]),
    )
    write_output(find_script(study, engine), text.encode())


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
            "choose another folder for the study with `--run`",
        ) from error
