"""Processes: one agent on the devices of several processes, on one host or several.

Every process runs the same program on its own devices, so all of them have to make the
same decisions: between two chunks they agree on those that depend on time or signals.
The first process writes the run. Imports JAX only in functions.
"""

import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from rlcli.errors import RlcliError

AUTO = "auto"  # the coordinator is found in the variables of a launcher
_HINT = "for example `--coordinator localhost:9000 --process 0/2`"
# Variables of launchers: the index of a process, and the number of processes.
_LAUNCHERS = (
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("RANK", "WORLD_SIZE"),  # of torchrun, with `MASTER_ADDR`
)


class ProcessGroup(NamedTuple):
    """The place of this process among those that train together."""

    coordinator: str = ""  # HOST:PORT of the first process; "": JAX finds it
    index: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run."""
        return self.index == 0


ALONE = ProcessGroup()
_group = ALONE  # set by `join`


def parse_group(coordinator: str | None, process: str | None) -> ProcessGroup:
    """The group that the options `--coordinator` and `--process` describe.

    `auto` reads the variables of SLURM, Open MPI or torchrun.
    """
    if coordinator is None and process is None:
        return ALONE
    if coordinator == AUTO and process is None:
        return _launched_group()
    if coordinator is None or process is None:
        given, missing = ("--process", "--coordinator")
        if process is None:
            given, missing = missing, given
        raise RlcliError(f"`{given}` requires `{missing}`", _HINT)
    numbers = re.fullmatch(r"(\d+)/(\d+)", process)
    if numbers is None or int(numbers[1]) >= int(numbers[2]):
        raise RlcliError(
            f"`--process {process}` is invalid: expected I/N with 0 ≤ I < N", _HINT
        )
    if not re.fullmatch(r"[^\s:]+:\d+", coordinator):
        raise RlcliError(
            f"`--coordinator {coordinator}` is invalid: expected HOST:PORT, or "
            f"`{AUTO}`",
            _HINT,
        )
    return ProcessGroup(coordinator, int(numbers[1]), int(numbers[2]))


def _launched_group() -> ProcessGroup:
    for index, count in _LAUNCHERS:
        if not (index in os.environ and count in os.environ):
            continue
        coordinator = ""
        if index == "RANK":
            names = ("MASTER_ADDR", "MASTER_PORT")
            coordinator = ":".join(os.environ.get(name, "") for name in names)
        return ProcessGroup(coordinator, int(os.environ[index]), int(os.environ[count]))
    names = ", ".join(f"`{count}`" for _, count in _LAUNCHERS)
    raise RlcliError(
        f"`--coordinator auto` needs the variables of a launcher, but {names} are not "
        "set",
        f"start rlcli with `srun`, `mpirun` or `torchrun`; {_HINT}",
    )


def join(group: ProcessGroup) -> None:
    """Connects to the other processes, before the first use of a device."""
    global _group
    if group.count == 1:
        return
    import jax

    keywords: dict[str, Any] = {}
    if group.coordinator:
        keywords = {
            "coordinator_address": group.coordinator,
            "num_processes": group.count,
            "process_id": group.index,
        }
    try:
        jax.distributed.initialize(**keywords)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise RlcliError(
            f"process {group.index} cannot join the other processes: {reason}",
            "start all processes with the same `--coordinator`, and check that its "
            "port is free on the host of process 0",
        ) from error
    _group = group


def count() -> int:
    """The number of processes that train together."""
    return _group.count


def is_first() -> bool:
    """Whether this process writes the run."""
    return _group.is_first


def any_process(flag: bool) -> bool:
    """Whether a flag is set in any process."""
    return flag if _group.count == 1 else max(_gather_number(int(flag))) > 0


def of_first(number: int) -> int:
    """The first process's value of a number, in every process."""
    return number if _group.count == 1 else _gather_number(number)[0]


def agree(value: str, values: Sequence[str]) -> str:
    """Returns the same value in every process.

    Of the values that the processes pass, it is the one that is last in `values`.
    """
    if _group.count == 1:
        return value
    return values[max(_gather_number(values.index(value)))]


def fetch(tree: Any) -> Any:
    """The arrays of all devices of all processes, on the host."""
    import jax

    if _group.count == 1:
        return jax.device_get(tree)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)


def _gather_number(number: int) -> list[int]:
    """The number of every process."""
    import numpy as np
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(np.int32(number)).tolist()
