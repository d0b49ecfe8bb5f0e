"""Trackers: send the results of a run to an experiment tracker, such as W&B.

Belongs here: the part `tracker`, its contract, and one file per library.
May import: the ground. Imports no JAX, and a library only when a run begins.
"""

from rlcli.trackers.contract import Record as Record
from rlcli.trackers.contract import TrackedRun as TrackedRun
from rlcli.trackers.contract import Tracker as Tracker
