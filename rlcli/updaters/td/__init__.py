"""Temporal-difference (TD) learning: learn action values by bootstrapping.

Belongs here: rules for targets, such as Q-learning and SARSA, and their shared core.
May import: the shared modules of updaters, and what updaters may import.

A head returns a prediction: a record of arrays that defines the returns it represents,
as particles, and its distance from given particles. A rule defines the particles that a
row bootstraps from. Rules and heads are independent; `updaters/critics.py` combines
them. Rules are functions of a context (`updaters/td/rule_context.py`, which also checks
their results), and `rule` turns each into the updater of its name
(`updaters/td/temporal_difference.py`). Heads are parts, so rules and heads may both
come from plug-ins.
"""

from rlcli.updaters.critics import Backup as Backup
from rlcli.updaters.td.rule_context import RuleContext as RuleContext
from rlcli.updaters.td.temporal_difference import rule as rule
