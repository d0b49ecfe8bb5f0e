"""Phases: the parts of an iteration, as the profiler names them.

`with jax.named_scope(SAMPLE)` marks the operations of a phase; the names cost nothing.
They have a prefix, because the modules of networks are scopes, too.
"""

PREFIX = "rlcli:"

ENVIRONMENT = PREFIX + "environment"
ACT = PREFIX + "act"
TRACE = PREFIX + "trace"
STORE = PREFIX + "store"
SAMPLE = PREFIX + "sample"
UPDATE = PREFIX + "update"
NOISE = PREFIX + "noise"  # random numbers, drawn for many steps together
STATISTICS = PREFIX + "statistics"  # returns and faults of episodes, rows of the log

PHASES = (ENVIRONMENT, ACT, STORE, SAMPLE, TRACE, UPDATE, NOISE, STATISTICS)
