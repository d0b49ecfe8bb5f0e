"""Tracking: what a run in training sends to its trackers.

Belongs here: records, their queues and threads, and how far each tracker is.
May import: monitor, runs, trackers, and everything below them.
"""
