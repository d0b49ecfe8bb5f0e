"""Replays: buffers of past steps, and how they are sampled.

Belongs here: rings, windows, priorities; the part `replay`.
May import: the ground.
"""
