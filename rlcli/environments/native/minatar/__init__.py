"""MinAtar: five Atari games on a grid of 10 × 10 cells.

Belongs here: the games, and their shared engine (`game`).
May import: `environments.drawing`, `environments.native.core`, and the ground.
"""
