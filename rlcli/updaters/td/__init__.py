"""Temporal-difference (TD) learning: learn action values by bootstrapping.

Belongs here: rules for targets, such as Q-learning and SARSA, and their shared core.
May import: the shared modules of updaters, and what updaters may import.
"""

from rlcli.updaters.critics import Backup as Backup
from rlcli.updaters.td.rule_context import RuleContext as RuleContext
from rlcli.updaters.td.temporal_difference import rule as rule
