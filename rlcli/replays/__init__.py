"""Replays: buffers of past steps and their sampling.

Belongs here: ring buffers, windows, priorities; the part `replay`.
May import: the ground.
"""
