"""Run loop: advances a run chunk by chunk until it ends.

Between two chunks it writes metrics and checkpoints, and handles signals.
"""

import contextlib
import copy
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from rlcli import errors
from rlcli.assembly.build_part import explain_user_errors
from rlcli.assembly.out_of_memory import OutOfMemoryError, explain_out_of_memory
from rlcli.errors import RlcliError
from rlcli.monitor import Monitor
from rlcli.monitor.lines import group_by_point, merge_evaluation, merge_rows
from rlcli.runs import run_folder
from rlcli.runs.files import explain_file_errors
from rlcli.runs.formatting import format_number_of
from rlcli.runs.hook_records import HookRecord
from rlcli.runs.run_folder import Run
from rlcli.training.experiment.experiment import (
    ActiveRun,
    ChunkReport,
    Experiment,
    advance_together,
)
from rlcli.training.experiment.hook_effects import HookEffects
from rlcli.training.experiment.pace import Pace
from rlcli.training.experiment.population import Population
from rlcli.training.experiment.profile import Profiler
from rlcli.training.hook import Chunk
from rlcli.training.run_writer import RunWriter, save_all, write_run
from rlcli.training.session import Session, register_closing
from rlcli.training.stopping.run_end import abandon, report_idling, stop_of
from rlcli.training.stopping.signals import Signals
from rlcli.xla import processes

STOP_REACHED = "every seed has reached `train.stop`"


@contextlib.contextmanager
def _discard_without_memory(members: Sequence[ActiveRun]) -> Iterator[None]:
    """Removes the folders of runs if the memory is insufficient.

    A folder remains if its run has made a step or has a checkpoint.
    """
    try:
        yield
    except OutOfMemoryError:
        for run, experiment in members:
            if experiment.step == 0 and run.latest_checkpoint() is None:
                for path in (run.metrics, run.log):
                    path.unlink(missing_ok=True)
                run.discard()
        raise


def agreed_status(
    members: Sequence[ActiveRun], signals: Signals, deadline: float | None
) -> tuple[str, str]:
    """The final status of all processes: a signal to any of them stops all."""
    own, reason = final_status(members, signals, deadline)
    status = processes.agree(own, ["", *errors.EXIT_CODES])
    step = members[0].experiment.step
    return status, reason if own == status else f"at step {step:,}"


def final_status(
    members: Sequence[ActiveRun], signals: Signals, deadline: float | None
) -> tuple[str, str]:
    """The status with which runs end now, and the reason; "" if they continue."""
    experiments = [member.experiment for member in members]
    first = experiments[0]
    if all(each.failure for each in experiments):
        return "failed", first.failure
    if all(each.scores.has_reached_stop for each in experiments if not each.failure):
        return "stopped", STOP_REACHED
    if first.is_finished:
        return "finished", ""
    if signals.status:
        return signals.status, f"at step {first.step:,}"
    if deadline is not None and time.monotonic() >= deadline:
        return "out_of_time", f"at step {first.step:,}"
    return "", ""


def _call_hooks(member: ActiveRun, effects: HookEffects, report: ChunkReport) -> Chunk:
    """Calls the hooks of a run at the end of a chunk, and returns it."""
    run, experiment = member
    # Copied: the results that are written stay as they are.
    rows, evaluation = copy.deepcopy((report.rows, report.evaluation))
    chunk = Chunk(run.folder, experiment.step, rows, evaluation, experiment, effects)
    best = experiment.scores.best
    experiment.hooks.act(
        chunk,
        is_best=best is not None and chunk.step in best.steps,
        is_checkpoint_due=report.is_checkpoint_due,
    )
    return chunk


def run_chunks(
    session: Session,
    members: Sequence[ActiveRun],
    messages: Sequence[str] = (),
    *,
    profile: bool = False,
    replayed: Sequence[HookRecord] = (),
) -> Iterator[Chunk]:
    """Advances runs to their end, with logs, evaluations and checkpoints.

    Several runs share one program. A run that fails ends, and the others continue.
    The runs may be a population. Yields the chunks of the first run. `replayed`: what
    hooks did in the run that is reproduced.
    """
    signals, monitor = session.signals, session.monitor
    register_closing()
    run, experiment = members[0]
    is_population = any(each.run.read_info().get("population") for each in members)
    population = Population(members) if is_population else None
    resume_at = _begin(members, signals, monitor)
    effects = HookEffects(run, experiment, replayed)
    pace = Pace(experiment.setup.agent.count_updates, experiment.iterations)
    profiler = Profiler(experiment, run.folder) if profile else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(_discard_without_memory(members))
        writers = [
            stack.enter_context(write_run(*pair, signals, monitor))
            for pair in zip(members, resume_at, strict=True)
        ]
        stack.enter_context(report_idling(monitor.message))
        stack.enter_context(_record_errors([member.run for member in members]))
        memory = experiment.program.memory
        stack.enter_context(explain_out_of_memory("this run", memory))
        stack.enter_context(explain_user_errors(experiment.recipe))
        evaluations = [_describe_evaluations(experiment)] if None in resume_at else []
        for message in filter(None, [*evaluations, session.warning, *messages]):
            monitor.message(message)
        status, reason = agreed_status(members, signals, session.deadline)
        while not status:
            before = experiment.iteration
            size = effects.limit(pace.size(before))
            reports = _advance(members, profiler, processes.of_first(size))
            if population is not None:  # before a checkpoint of this step
                reports = population.advance(reports)
            report = reports[0]
            pace.measure(before, report.iterations, report.seconds)
            effects.repeat()
            chunk = _call_hooks(members[0], effects, report)
            step, is_closed = experiment.step, False
            try:
                yield chunk
            except GeneratorExit:  # the caller has closed the generator
                is_closed = True
            # Then, so that rows and checkpoints have what a hook has done.
            reports = [effects.complete(report), *reports[1:]]
            _show_chunk(members, reports, monitor)
            for writer, each in zip(writers, reports, strict=True):
                writer.record(each, monitor)
            requested = processes.any_process(signals.take_save_request())
            is_slow = processes.any_process(pace.is_slow)
            _save_if_due(writers, reports, requested or is_slow)
            if requested:
                monitor.message(f"checkpoint saved at step {step:,}")
            status, reason = "stopped", f"by the caller of `chunks`, at step {step:,}"
            if not is_closed:
                status, reason = agreed_status(members, signals, session.deadline)
        signals.adopt(status)
        if profiler and not profiler.has_ended:
            monitor.message("no profile: the run ended before it could be taken")
        signals.acknowledge()
        save_all(writers)
        for writer in writers:
            writer.prune()
        experiment.program.close()
        for writer in writers:
            writer.end(status, reason)


def _save_if_due(
    writers: Sequence[RunWriter], reports: Sequence[ChunkReport], is_requested: bool
) -> None:
    """Saves all runs if a checkpoint is due or requested; ends those that have failed.

    Runs that have failed are saved in any case.
    """
    failed = [writer for writer in writers if writer.has_failed]
    is_due = is_requested or any(each.is_checkpoint_due for each in reports)
    saved = writers if is_due else failed
    save_all(saved)
    for writer in failed:
        writer.end("failed", "")
    # After all runs are saved: if the process is killed before, they still have a
    # checkpoint of the same step.
    for writer in saved:
        writer.prune()


def _advance(
    members: Sequence[ActiveRun], profiler: Profiler | None, max_iterations: int
) -> list[ChunkReport]:
    if profiler is not None:
        return [profiler.advance(max_iterations)]
    return advance_together([member.experiment for member in members], max_iterations)


def _begin(
    members: Sequence[ActiveRun], signals: Signals, monitor: Monitor
) -> list[int | None]:
    """Marks runs as running in `run.json`, and begins to show them in the monitor.

    Returns the step at which the metrics of each continue; None for a new run.
    """
    for run, experiment in members:
        if not experiment.failure:
            run.write_info(
                status="running",
                reason="",
                hint="",
                frozen=experiment.failures.reasons,
                total_steps=experiment.total_steps,
                ended=None,
            )
    runs = [member.run for member in members]
    signals.abandon = functools.partial(abandon, runs)
    signals.stop = stop_of(runs)
    run, experiment = members[0]
    monitor.begin(
        experiment.total_steps,
        [each.folder.name for each in runs]
        if len(runs) > 1
        else experiment.setup.seeds,
        log_path=run.log,
        start=experiment.step,
        is_stop_requested=lambda: signals.is_stop_requested,
    )
    experiment.program.report_phase = monitor.set_phase
    has_checkpoint = [each.latest_checkpoint() is not None for each in runs]
    return [experiment.step if each else None for each in has_checkpoint]


def _describe_evaluations(experiment: Experiment) -> str:
    """How a new run is evaluated, whether its recipe or a default says so."""
    evaluate = experiment.recipe.train.evaluate
    if evaluate.every is None:
        return "no evaluations: `--set train.evaluate.every=N` adds one every N steps"
    episodes = format_number_of(evaluate.episodes, "episode")
    return f"evaluates {episodes} every {evaluate.every:,} steps"


def _show_chunk(
    members: Sequence[ActiveRun], reports: Sequence[ChunkReport], monitor: Monitor
) -> None:
    """Shows the results of a chunk, per seed; per run if there are several runs."""
    step = members[0].experiment.step
    if len(members) == 1:
        monitor.update(reports[0].rows, step, reports[0].evaluation)
    else:
        rows: list[Mapping[str, Any]] = []
        evaluation: list[Mapping[str, Any]] = []
        for (run, experiment), report in zip(members, reports, strict=True):
            fields = {"run": run.folder.name, "frozen": experiment.failure}
            rows += [{**merge_rows(p), **fields} for p in group_by_point(report.rows)]
            if report.evaluation:
                evaluation.append(merge_evaluation(report.evaluation) | fields)
        monitor.update(sorted(rows, key=itemgetter("T")), step, evaluation)
    for (run, _), report in zip(members, reports, strict=True):
        head = f"{run.folder.name}: " if len(members) > 1 else ""
        for message in report.messages:
            monitor.message(f"{head}{message}")


@contextlib.contextmanager
def _record_errors(runs: Sequence[Run]) -> Iterator[None]:
    """Records an error that ends runs, for example an error of their environment.

    A run that has already ended keeps its own reason.
    """
    try:
        with explain_file_errors():
            yield
    except RlcliError as error:
        fields = {
            "reason": error.message,
            "hint": error.hint,
            "ended": run_folder.timestamp(),
        }
        with contextlib.suppress(RlcliError):  # for example if the disk is full
            for run in runs:
                if not run.read_info().get("ended"):
                    run.write_info(status="failed", **fields)
        raise
