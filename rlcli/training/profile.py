"""Profile: a trace of a few iterations, and a table of where their time goes."""

from __future__ import annotations

import collections
import dataclasses
import gzip
import json
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from rlcli.loop import phases
from rlcli.loop.advance import noise_block_size

if TYPE_CHECKING:
    from rlcli.training.experiment import ChunkReport, Experiment

TRACED_SECONDS = 0.02  # of training: a trace has an event for every operation
MAX_TRACED_SECONDS = 0.3
OTHER = "other"  # operations of no phase, such as copies and the control of loops
HOST = "host"  # outside of the compiled program, between two chunks

_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = .*op_name=\"([^\"]*)\"")


@dataclasses.dataclass(frozen=True)
class Profile:
    """Where the time of an iteration goes."""

    trace: Path  # a file for https://ui.perfetto.dev
    iterations: int
    seconds: float  # per iteration, not traced
    shares: Mapping[str, float]  # of the time of an iteration, by phase
    overhead: float  # duration of the traced program ÷ that of the plain one

    def lines(self) -> list[str]:
        """The table as text, the largest share first."""
        rows = sorted(self.shares.items(), key=lambda row: -row[1])
        table = [
            f"{phase:12} {share:6.1%} {share * self.seconds * 1e6:12,.1f} µs"
            for phase, share in rows
        ]
        return [
            f"profile of {self.iterations:,} iterations of "
            f"{self.seconds * 1e6:,.1f} µs each:",
            *table,
            f"(shares of a traced chunk, which took {self.overhead:.1f} times as long)",
            f"trace, for https://ui.perfetto.dev: {self.trace}",
        ]


class Profiler:
    """Advances an experiment, and profiles one chunk once its agent learns.

    Two chunks of equal length: the first is plain, for its duration; the second is
    traced, for how the time of the program is divided.
    """

    def __init__(self, experiment: Experiment, run: Path) -> None:
        self.profile: Profile | None = None
        self._experiment = experiment
        self._folder = run / "profile"
        self._iteration_seconds = 0.0  # by the last chunk with updates
        self._plain: tuple[float, float] | None = None  # of the chunk, the program

    def advance(self, max_iterations: int) -> ChunkReport:
        """`Experiment.advance`, by fewer iterations where they are profiled."""
        experiment = self._experiment
        has_learned = experiment.updates(experiment.iteration) > 0
        if self.profile is not None or not has_learned:
            return experiment.advance(max_iterations)
        if not self._iteration_seconds:
            report = experiment.advance(max_iterations)
            self._iteration_seconds = report.seconds / report.iterations
            return report
        wanted = self._traced_iterations()
        is_traced = self._plain is not None
        if is_traced:
            jax.profiler.start_trace(self._folder, create_perfetto_trace=True)
        try:
            report, seconds, program = _advance_timed(experiment, wanted)
        finally:
            if is_traced:
                jax.profiler.stop_trace()
        if report.iterations < wanted or report.evaluation:
            self._plain = None  # interrupted by an evaluation or a checkpoint
        elif self._plain is None:
            self._plain = seconds, program
        else:
            self.profile = self._summarize(report.iterations, program)
            lines = self.profile.lines()
            (self._folder / "table.txt").write_text("\n".join(lines) + "\n")
            return report._replace(messages=[*report.messages, *lines])
        return report

    def _traced_iterations(self) -> int:
        """As many as take `TRACED_SECONDS`, in whole blocks of noise if short enough.

        Noise is drawn for a block of steps: a part of one would cost as much.
        """
        wanted = max(1, int(TRACED_SECONDS / self._iteration_seconds))
        setup = self._experiment.setup
        block = max(1, noise_block_size(setup.environment.num_envs) // setup.unroll)
        blocks = -(-wanted // block)
        is_short = blocks * block * self._iteration_seconds < MAX_TRACED_SECONDS
        return blocks * block if is_short else wanted

    def _summarize(self, iterations: int, traced: float) -> Profile:
        assert self._plain is not None
        seconds, program = self._plain
        trace = max(self._folder.rglob("perfetto_trace.json.gz"))
        with gzip.open(trace, "rt", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        times = divide_time(events, phases_of_operations(self._experiment.loop.hlo()))
        total = sum(times.values()) or 1.0
        device = program / seconds
        shares = {phase: device * each / total for phase, each in times.items()}
        return Profile(
            trace=trace,
            iterations=iterations,
            seconds=seconds / iterations,
            shares={**shares, HOST: 1 - device},
            overhead=traced / program,
        )


def _advance_timed(
    experiment: Experiment, iterations: int
) -> tuple[ChunkReport, float, float]:
    """The report of a chunk, its seconds, and the seconds of the program."""
    loop, program = experiment.loop, 0.0

    def advance(*arguments: Any) -> Any:
        nonlocal program
        start = time.perf_counter()
        result = jax.block_until_ready(loop.advance(*arguments))
        program += time.perf_counter() - start
        return result

    experiment.loop = loop._replace(advance=advance)
    start = time.perf_counter()
    try:
        report = experiment.advance(iterations)
    finally:
        experiment.loop = loop
    return report, time.perf_counter() - start, program


def phases_of_operations(hlo: str) -> dict[str, str]:
    """The phase of each operation of a compiled program, given as HLO text.

    The innermost named scope counts that is the name of a phase.
    """
    found = {}
    for line in hlo.splitlines():
        if match := _INSTRUCTION.match(line):
            scopes = re.split(r"[/()]", match[2])
            known = [scope for scope in scopes if scope in phases.PHASES]
            found[match[1]] = known[-1] if known else OTHER
    return found


def divide_time(
    events: Iterable[Mapping[str, Any]], phase_of: Mapping[str, str]
) -> dict[str, float]:
    """The time of each phase in the events of a trace, in microseconds.

    An event within another, on the same thread, is subtracted from it. Annotations of
    the host that bear the name of a phase count, too.
    """
    times: dict[str, float] = collections.defaultdict(float)
    threads: dict[Any, list[Mapping[str, Any]]] = collections.defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and _phase(event, phase_of):
            threads[event["pid"], event["tid"]].append(event)
    for timeline in threads.values():
        open_events: list[tuple[float, str]] = []  # (end, phase), the innermost last
        for event in sorted(timeline, key=lambda event: (event["ts"], -event["dur"])):
            phase = _phase(event, phase_of)
            while open_events and open_events[-1][0] <= event["ts"]:
                open_events.pop()
            if open_events:
                times[open_events[-1][1]] -= event["dur"]
            times[phase] += event["dur"]
            open_events.append((event["ts"] + event["dur"], phase))
    return {phase: max(0.0, each) for phase, each in times.items()}


def _phase(event: Mapping[str, Any], phase_of: Mapping[str, str]) -> str:
    """The phase of an event; "" if it is not of the program."""
    operation = event.get("args", {}).get("hlo_op")
    if operation is not None:
        return phase_of.get(operation, "")
    return event["name"] if event["name"] in phases.PHASES else ""
