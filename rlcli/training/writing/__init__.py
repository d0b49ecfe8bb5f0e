"""Writing: what a run in training writes to its folder, and sends to its trackers.

Belongs here: metrics, films, checkpoints, trackers and how far each of them is.
May import: monitor, runs, trackers, and everything below them; `training.stopping`.
"""
