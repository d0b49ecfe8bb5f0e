"""Hooks: act at the events of a run, such as a curriculum after each evaluation.

Belongs here: the part `hook` and its contract. May import: the ground. Imports no JAX.
"""

from rlcli.hooks.contract import EVENTS as EVENTS
from rlcli.hooks.contract import Hook as Hook
