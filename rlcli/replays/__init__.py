"""Replays: buffers of past steps and their sampling.

Belongs here: ring buffers, windows, priorities, data sets; the part `replay`.
May import: the ground.
"""
