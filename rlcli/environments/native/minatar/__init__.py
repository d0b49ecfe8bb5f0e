"""MinAtar: five Atari games on a grid of 10 × 10 cells.

Belongs here: the games, and what they share (`game`).
May import: `environments.drawing`, `environments.native.timesteps`, and the ground.
"""
