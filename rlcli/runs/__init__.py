"""Runs: reads and writes the files of a run.

Belongs here: run folder, checkpoints, snapshots, metrics, statistics, provenance.
May import: recipe, loop and assembly (snapshots only), and the top-level modules.
"""
