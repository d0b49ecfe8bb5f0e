"""Experiment: what runs of one program compute and remember between two chunks.

Belongs here: the compiled program, log rows, failures, scores, populations, profiles.
May import: everything below training, and `training.writing`, but not to open runs.
"""
