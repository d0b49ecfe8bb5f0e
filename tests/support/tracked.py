"""Tracked: a run and records to hand to a tracker, without training."""

import numpy as np

from rlcli.trackers import Record, TrackedRun

RECIPE = {"tracer": {"name": "n_step", "n": 3}, "network": {"layers": [64, 64]}}


def tracked_run(folder, *, step=0, seeds=(0, 1)):
    run = TrackedRun("abc123", "dqn/first", folder, RECIPE, seeds, ("tag",), step)
    folder.mkdir(exist_ok=True)
    return run


def record(step, value, *, seed=None, histograms=(), films=()):
    scalars = {"train/return": value}
    values = {name: np.arange(4.0) for name in histograms}
    return Record(step, seed, 1.8e9 + step, scalars, values, dict(films))


def logged(tracker, run, *batches):
    """Hands batches of records to a tracker, from its start to its end."""
    session = tracker.start(run)
    for records in batches:
        tracker.log(session, records)
    tracker.finish(session, "finished")
