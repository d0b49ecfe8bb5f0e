"""Profile: a trace of a few iterations, and a table of where their time goes."""

import collections
import contextlib
import dataclasses
import gzip
import json
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from rlcli.loop import phases
from rlcli.training.experiment.experiment import ChunkReport, Experiment

TRACED_SECONDS = 0.02  # of training: a trace has an event for every operation …
MAX_TRACED_SECONDS = 0.1  # … or a block of noise, if that takes no longer than this
SETTLED_CHUNKS = 3  # with updates, before the lengths of chunks have settled
MAX_EVENTS = 1_000_000  # JAX drops the others
OTHER = "other"  # operations of no phase, such as copies, and the control of loops
HOST = "host"  # outside of compiled programs

_MODULE = re.compile(r"^HloModule ([\w.\-]+)")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = .*op_name=\"([^\"]*)\"")


@dataclasses.dataclass(frozen=True)
class Profile:
    """The share of each phase in the time of an iteration."""

    trace: Path  # a file for https://ui.perfetto.dev
    seconds: float  # per iteration, not traced
    iterations: int  # traced
    shares: Mapping[str, float]  # of the time of an iteration, by phase
    overhead: float  # duration of a traced iteration ÷ that of a plain one
    is_cut: bool  # whether JAX has dropped events

    def lines(self) -> list[str]:
        """The table as text, the largest share first."""
        rows = sorted(self.shares.items(), key=lambda row: -row[1])
        table = [
            f"{phase.removeprefix(phases.PREFIX):12} {share:6.1%} "
            f"{share * self.seconds * 1e6:12,.1f} µs"
            for phase, share in rows
        ]
        cut = ["the trace is incomplete: JAX keeps a million events"]
        return [
            f"an iteration takes {self.seconds * 1e6:,.1f} µs, of which:",
            *table,
            f"(shares are from {self.iterations:,} traced iterations, which took "
            f"{self.overhead:.1f} times as long)",
            *(cut if self.is_cut else []),
            f"trace, for https://ui.perfetto.dev: {self.trace}",
        ]


class Profiler:
    """Advances an experiment, and profiles it once its agent learns.

    A chunk of the usual length gives the duration of an iteration. The next chunk is
    short and traced, and shows how the duration is divided. An error of the profiler
    is a message: it does not end the run.
    """

    def __init__(self, experiment: Experiment, run: Path) -> None:
        self.profile: Profile | None = None
        self.has_ended = False
        self._experiment = experiment
        self._folder = run / "profile"
        self._chunks = 0  # with updates
        # Seconds per iteration, and those of the program.
        self._plain: tuple[float, float] | None = None
        # A cached program may have been compiled before its scopes had these names.
        jax.config.update("jax_compilation_cache_include_metadata_in_key", True)

    def advance(self, max_iterations: int) -> ChunkReport:
        """`Experiment.advance`, by fewer iterations where they are traced."""
        experiment = self._experiment
        count_updates = experiment.setup.agent.count_updates
        if self.has_ended or not count_updates(experiment.iteration):
            return experiment.advance(max_iterations)
        if self._plain is not None:
            return self._advance_traced(min(max_iterations, self._traced_iterations()))
        report, seconds, program = _time_chunk(experiment, max_iterations)
        self._chunks += 1
        if self._chunks >= SETTLED_CHUNKS and not report.evaluation:
            self._plain = seconds / report.iterations, program / report.iterations
        return report

    def _traced_iterations(self) -> int:
        assert self._plain is not None
        seconds, setup = self._plain[1], self._experiment.setup
        wanted = max(1, int(TRACED_SECONDS / seconds))
        # Noise is drawn for a block of steps: a part of one would cost as much.
        block = max(1, setup.noise_block // setup.unroll)
        return max(wanted, block) if block * seconds < MAX_TRACED_SECONDS else wanted

    def _advance_traced(self, iterations: int) -> ChunkReport:
        self.has_ended, message = True, ""
        try:
            self._folder.mkdir()  # JAX would write through links in one that exists
            jax.profiler.start_trace(self._folder, create_perfetto_trace=True)
        except Exception as error:  # noqa: BLE001 - another trace, or the disk
            message = f"no profile: {error}"
        try:
            report, _, program = _time_chunk(self._experiment, iterations)
        except BaseException:
            with contextlib.suppress(Exception):
                jax.profiler.stop_trace()
            raise
        if message:
            return report._replace(messages=[*report.messages, message])
        try:
            jax.profiler.stop_trace()
            self.profile = self._summarize(report.iterations, program)
            lines = self.profile.lines()
            (self._folder / "table.txt").write_text("\n".join(lines) + "\n")
        except Exception as error:  # noqa: BLE001 - the disk, or another format
            lines = [f"no profile: {error}"]
        return report._replace(messages=[*report.messages, *lines])

    def _summarize(self, iterations: int, traced: float) -> Profile:
        assert self._plain is not None
        experiment, (seconds, program) = self._experiment, self._plain
        trace = max(self._folder.rglob("perfetto_trace.json.gz"))
        with gzip.open(trace, "rt", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        hlo, is_pure = experiment.program.loop.hlo(), experiment.setup.environment.pure
        times = divide_time(events, module_name(hlo), phases_of_operations(hlo))
        # Several devices run simultaneously.
        total = traced * 1e6 * experiment.setup.all_devices
        device = program / seconds
        shares = {phase: device * each / total for phase, each in times.items()}
        # The host loop is a program in Python, with a dispatch per step.
        rest = OTHER if is_pure else HOST
        shares[rest] = shares.get(rest, 0) + max(0.0, device - sum(shares.values()))
        shares[HOST] = shares.get(HOST, 0) + max(0.0, 1 - device)
        return Profile(
            trace=trace,
            seconds=seconds,
            iterations=iterations,
            shares=shares,
            overhead=traced / iterations / program,
            is_cut=len(events) >= MAX_EVENTS,
        )


def _time_chunk(
    experiment: Experiment, iterations: int
) -> tuple[ChunkReport, float, float]:
    """The report of a chunk, its seconds, and the seconds of the program."""
    loop, program = experiment.program.loop, 0.0

    def advance(*arguments: Any) -> Any:
        nonlocal program
        start = time.perf_counter()
        result = jax.block_until_ready(loop.advance(*arguments))
        program += time.perf_counter() - start
        return result

    experiment.program.loop = loop._replace(advance=advance)
    start = time.perf_counter()
    try:
        report = experiment.advance(iterations)
    finally:
        experiment.program.loop = loop
    return report, time.perf_counter() - start, program


def module_name(hlo: str) -> str:
    """The name of a compiled program, given as HLO text."""
    match = _MODULE.match(hlo)
    return match[1] if match else ""


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
    events: Iterable[Mapping[str, Any]], module: str, phase_of: Mapping[str, str]
) -> dict[str, float]:
    """The time of each phase in the events of a trace, in microseconds.

    Counts the operations of the program `module`, and annotations of the host that
    have the name of a phase. An event within another, on the same thread, is subtracted
    from it.
    """
    times: dict[str, float] = collections.defaultdict(float)
    threads: dict[Any, list[tuple[float, float, str]]] = collections.defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and (phase := _phase(event, module, phase_of)):
            key = event["pid"], event["tid"]
            threads[key].append((event["ts"], -event["dur"], phase))
    for timeline in threads.values():
        open_events: list[tuple[float, str]] = []  # (end, phase), the innermost last
        for start, negative, phase in sorted(timeline):
            while open_events and open_events[-1][0] <= start:
                open_events.pop()
            if open_events:
                times[open_events[-1][1]] += negative
            times[phase] -= negative
            open_events.append((start - negative, phase))
    return {phase: max(0.0, each) for phase, each in times.items()}


def _phase(
    event: Mapping[str, Any], module: str, phase_of: Mapping[str, str]
) -> str | None:
    """The phase of an event; None if it does not count."""
    arguments = event.get("args", {})
    if "hlo_op" in arguments:
        if arguments.get("hlo_module") != module:
            return None
        return phase_of.get(arguments["hlo_op"], OTHER)
    name = arguments.get("long_name", event["name"])  # JAX drops what precedes a colon
    return name if name in phases.PHASES else None
