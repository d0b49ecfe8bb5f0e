"""Temporal differences: learning action values by bootstrapping.

Belongs here: rules for targets, such as Q-learning and SARSA, and the core they share.
May import: the shared modules of updaters, and what updaters may import.
"""

from rlcli.updaters.td.temporal_difference import RuleContext as RuleContext
from rlcli.updaters.td.temporal_difference import rule as rule
