"""Inspection: what an updater gets and does at a checkpoint; `rlcli inspect`.

Belongs here: the next update of a checkpoint, and its statistics.
May import: evaluation, and everything below it.
"""
