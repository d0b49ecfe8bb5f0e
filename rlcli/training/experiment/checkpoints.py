"""Checkpoints: writes the state of a run, its latest policies and its best ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlcli.runs import snapshots
from rlcli.runs.run_folder import Run
from rlcli.xla import processes

if TYPE_CHECKING:
    from rlcli.training.experiment.experiment import Experiment


def save_checkpoint(experiment: Experiment, run: Run) -> None:
    """Writes policies and a checkpoint, unless all seeds are frozen.

    The checkpoint is written last: a run that is killed between two of the files
    resumes from an older checkpoint, and reaches the same policies again.
    """
    recipe, setup, frozen = experiment.recipe, experiment.setup, experiment.frozen
    if len(frozen) == len(setup.seeds):
        return
    latest, best = experiment.policies(), experiment.scores.best
    arrays = experiment.program.checkpoint_arrays(experiment.seeds)
    # Every process takes part in fetching the arrays; only the first one writes.
    if not processes.is_first():
        return
    experiment.program.report_phase("writing a checkpoint")
    run.make_checkpoints_folder()
    path = run.checkpoint(experiment.step)
    index: dict[str, Any] = {"latest": path.name}
    if best is not None:
        index["best"] = {
            str(seed): {
                "step": int(best.steps[i]),
                "return": float(best.returns[i]),
                **experiment.frozen_field(seed),
            }
            for i, seed in enumerate(setup.seeds)
        }
    for file, policies in ((run.best, best), (run.policy, latest)):
        if policies is not None:
            returns, steps, episodes = (tuple(each.tolist()) for each in policies[:-1])
            content = (recipe, setup.seeds, steps, episodes, returns, policies.acting)
            snapshots.save_policy(file, snapshots.Snapshot(*content, frozen))
    metrics = experiment.log_rows.metrics
    hooks = experiment.hooks.save()
    snapshots.save_progress(path, recipe, setup, arrays, metrics, frozen, hooks)
    run.write_index(**index)
