"""Experiment: what runs of one program compute and remember between two chunks.

Belongs here: the program, log rows, failures, best policies, checkpoints, populations.
May import: `training.tracking`, and everything below training.
"""
