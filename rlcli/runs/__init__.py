"""Runs: what a run leaves on disk, and how it is read again.

Belongs here: run folder, checkpoints, snapshots, metrics, statistics, provenance.
May import: recipe, loop and assembly (snapshots only), and the ground.
"""
