"""Phases: the parts of an iteration, as the profiler names them.

`with jax.named_scope(SAMPLE)` marks the operations of a phase; the names cost nothing.
"""

from __future__ import annotations

ENVIRONMENT = "environment"
ACT = "act"
TRACE = "trace"
STORE = "store"
SAMPLE = "sample"
UPDATE = "update"
NOISE = "noise"  # random numbers, drawn for many steps together
STATISTICS = "statistics"  # returns and faults of episodes, rows of the log

PHASES = (ENVIRONMENT, ACT, STORE, SAMPLE, TRACE, UPDATE, NOISE, STATISTICS)
