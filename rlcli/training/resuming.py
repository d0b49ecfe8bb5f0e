"""Resume: the function behind `rlcli resume`.

Runs that were trained together are resumed together, so that each continues with the
same bits. Imports JAX only when it runs, after the thread layout is set.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcli.errors import OUT_OF_TIME, RlcliError
from rlcli.recipe import Recipe
from rlcli.registry.paths import resolves
from rlcli.runs import thread_layout
from rlcli.runs.locate import find_trained_together, locate_run
from rlcli.runs.ownership import is_trusted
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import find_study
from rlcli.training.hook import Chunk
from rlcli.training.process_group import check_agreement, local_recipe, local_run
from rlcli.training.session import Session, open_session
from rlcli.training.tracking.track_records import Marks
from rlcli.xla import processes, threads
from rlcli.xla.processes import ALONE, ProcessGroup

if TYPE_CHECKING:
    from rlcli.runs.snapshots import CheckpointContent
    from rlcli.training.experiment.experiment import ActiveRun
    from rlcli.training.recovery import RecordedRecipe


@resolves("run")
def resume(
    run: str | Path,
    *,
    set: Sequence[str] = (),
    max_time: str | float | None = None,
    quiet: bool = False,
    trust: bool | None = None,
    coordinator: str | None = None,
    process: str | None = None,
) -> Path:
    """Continues a run exactly where it stopped, and returns its folder.

    Only `train.steps`, `train.stop`, the periods and the devices can be changed. If
    there is nothing to continue, the folder stays as it is, to the byte. Runs that
    were trained together continue together.

    Args:
        run: a run folder.
        set: options that replace the recipe's, such as `train.steps=10_000`.
        max_time: seconds, or a duration such as `3h50m`, from the call.
        quiet: prints only warnings and errors.
        trust: whether code that the run's recipe names may be imported, and its
            trackers may contact a host. By default your own runs may, see
            `rlcli.trust`.
        coordinator: the address HOST:PORT of the first of several processes that train
            one agent together, or `auto`; see `rlcli.train`. Every process reads the
            run folder, and only the first one writes it.
        process: this process and their number: `0/4`.
    """
    if find_study(run):
        raise RlcliError(
            f"`{run}` has several runs", "`rlcli.study` continues all of them"
        )
    group = processes.parse_group(coordinator, process)
    target = local_run(group, locate_run(run))
    for _ in resume_chunks(
        target,
        set=set,
        max_time=max_time,
        quiet=quiet or not group.is_first,
        trust=trust,
        group=group,
    ):
        pass
    return target.folder


def resume_chunks(
    run: Run,
    *,
    set: Sequence[str] = (),
    max_time: str | float | None = None,
    quiet: bool = False,
    trust: bool | None = None,
    ends_at_log_points: bool = False,
    group: ProcessGroup = ALONE,
) -> Generator[Chunk, None, None]:
    """Continues a run, and yields after every chunk; see `rlcli.chunks`.

    Continues at the newest checkpoint; there are no chunks if the runs are finished.
    `ends_at_log_points`: whether chunks end at log points. `group`: the processes that
    train the run; `run` is this one's own.
    """
    title = run.read_info().get("recipe", run.folder.name)
    with open_session(title, max_time=max_time, quiet=quiet) as session:
        runs = find_trained_together(run)
        for each in runs:
            if not is_trusted(trust, each.folder):
                each.refuse_linked_checkpoints()
        session.hold(runs, is_resume=True)
        warning = thread_layout.apply_for_run(runs[0].folder, set, group.count)
        session.begin_tracing(warning, group)
        from rlcli.training import recovery
        from rlcli.training.run_loop import run_chunks

        if len(runs) > 1 and all(map(recovery.is_frozen, runs)):
            return
        checkpoints, messages = recovery.newest_common(runs)
        if trust is None and not recovery.have_equal_code(runs):
            trust = False  # all of them import the code of one
        recorded = [
            recovery.recorded_recipe(run, saved, set, trust)
            for run, saved in zip(runs, checkpoints, strict=True)
        ]
        messages.append(recorded[-1].admission.warning)
        recipes = [local_recipe(group, each.after) for each in recorded]
        members, inexact = _restore(runs, checkpoints, recipes)
        check_agreement(members[0].experiment.step)
        for _, experiment in members:
            recovery.refuse_too_short(experiment)
            if ends_at_log_points:
                experiment.log_rows.max_points = 1
        pairs = zip(members, (each.before for each in recorded), strict=True)
        alive = [pair for pair in pairs if not _has_failed(pair[0])]
        if all(itertools.starmap(_is_finished, alive)):
            for (run, experiment), _ in alive[:1]:
                step = experiment.step
                session.monitor.note(f"`{run.folder}` is finished: {step:,} steps")
            return
        if not _has_time_left(members, session):
            return
        for run, experiment in members:
            if experiment.trackers:
                Marks(run.trackers)  # refuses a damaged file before any change
        for member, saved, each in zip(members, checkpoints, recorded, strict=True):
            _record_resume(member, saved, each, inexact)
            if len(runs) > 1:  # also if `run.json` was missing
                names = [run.folder.absolute().name for run in runs]
                member.run.write_info(members=names)
        messages += [inexact, _describe_versions(checkpoints)]
        yield from run_chunks(session, members, messages)


def _restore(
    runs: Sequence[Run],
    checkpoints: Sequence[CheckpointContent | None],
    recipes: Sequence[Recipe],
) -> tuple[list[ActiveRun], str]:
    """Restores runs from their checkpoints; also returns a message if it is inexact.

    A checkpoint is None for a failed run, and for all runs if they start over.
    """
    from rlcli.assembly import out_of_memory
    from rlcli.runs import snapshots
    from rlcli.training import recovery
    from rlcli.training.experiment.experiment import ActiveRun
    from rlcli.training.experiment.hook_effects import restore_environment
    from rlcli.training.experiment.together import build_experiments

    for run, saved, recipe in zip(runs, checkpoints, recipes, strict=True):
        seeds = recovery.recorded_seeds(run, saved, recipe)
    first = next(filter(None, checkpoints), None)
    experiments = build_experiments(
        recipes,
        seeds,
        is_new=first is None,
        source=runs[0].init if runs[0].init.is_file() else None,
    )
    program = experiments[0].program
    members = [*map(ActiveRun, runs, experiments)]
    program.check()
    inexact = ""
    with out_of_memory.explain_out_of_memory("this run", program.memory):
        if first is None:
            program.begin()
            return members, inexact
        # The program needs a state for the seeds of a failed run, too. They get a copy
        # of another run's state, and their results are not used.
        trees = [(saved or first).progress for saved in checkpoints]
        progress = snapshots.stack_progress(trees) if len(trees) > 1 else trees[0]
        if len(runs) == 1:
            restore_environment(program.setup.environment, first.numbers)
        inexact = program.restore(first._replace(progress=progress))
    for (run, experiment), saved in zip(members, checkpoints, strict=True):
        if saved is None:
            experiment.failures.end(run.read_info().get("reason", ""))
        else:
            experiment.restore(saved, run)
    return members, inexact


def _record_resume(
    member: ActiveRun,
    saved: CheckpointContent | None,
    recorded: RecordedRecipe,
    inexact: str,
) -> None:
    """Records in the folder of a run that it is resumed, unless it has failed."""
    from rlcli.runs import code
    from rlcli.training import recovery

    run, experiment = member
    recipe_before = recorded.before
    run.sign_lock()
    run.remove_temporaries()
    if experiment.failure:
        return
    changes = recovery.record_changes(run, recipe_before, experiment.recipe)
    if saved is None and "code" not in run.read_info():  # killed while it began
        changes |= code.copy_code(run, experiment.recipe, is_resume=True)
    recovery.rewrite(run, experiment.recipe, saved)
    versions = recovery.changed_versions(saved)
    run.record_resume(step=experiment.step, inexact=inexact, versions=versions)
    if experiment.recipe.train.data_parallel != recipe_before.train.data_parallel:
        devices = experiment.program.setup.all_devices
        changes |= {"layout": threads.current_layout(devices)}
    if recorded.admission.signed is not None:  # in this folder, with these trackers
        signed = recorded.admission.signed
        changes |= {"code": signed, **code.sign_run(run, experiment.recipe, signed)}
    run.write_info(**changes)


def _describe_versions(checkpoints: Sequence[CheckpointContent | None]) -> str:
    """A message if other versions of packages wrote the checkpoints, or ""."""
    from rlcli.runs.formatting import format_differences
    from rlcli.training import recovery

    found = recovery.changed_versions(next(filter(None, checkpoints), None))
    if not found:
        return ""
    return (
        f"other versions wrote the checkpoint ({format_differences(found)}): the run "
        "continues, but its numbers may differ from those of an uninterrupted run"
    )


def _is_finished(member: ActiveRun, recipe_before: Recipe) -> bool:
    """Whether a run has made its last step, or reached `train.stop`."""
    from rlcli.training.run_loop import STOP_REACHED

    run, experiment = member
    info = run.read_info()
    if info.get("status") == "finished":
        return experiment.is_finished
    stop = experiment.recipe.train.stop
    # The reason may continue with the frozen seeds.
    has_reached_stop = str(info.get("reason")).startswith(STOP_REACHED)
    return has_reached_stop and stop == recipe_before.train.stop


def _has_failed(member: ActiveRun) -> bool:
    """Whether a run cannot continue, and `run.json` records that it failed."""
    run, experiment = member
    return bool(experiment.failure) and run.read_info().get("status") == "failed"


def _has_time_left(members: Sequence[ActiveRun], session: Session) -> bool:
    """Whether no signal has stopped runs before their first step; refuses a timeout."""
    from rlcli.training.run_loop import final_status

    status, _ = final_status(members, session.signals, session.deadline)
    if status == "out_of_time":
        message = "`--max-time` was reached before its first step"
        raise RlcliError(
            f"`{members[0].run.folder}` did not continue: {message}",
            "the run is unchanged: resume it again, with a longer `--max-time`",
            code=OUT_OF_TIME,
        )
    # A run that was killed at its end still has to record that it finished or failed.
    return status in ("", "finished", "failed", "stopped")
