"""Stopping: signals, and how they end a run, a function and a process.

Belongs here: what receives signals; what raises, or ends the process, after one.
May import: monitor, runs, and everything below them; nothing else of training.
"""
