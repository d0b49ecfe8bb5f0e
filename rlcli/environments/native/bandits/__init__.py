"""Bandits: one state, several arms.

Belongs here: bandits whose arms draw their rewards from a distribution.
May import: `environments.drawing`, `environments.native.timesteps`, and the ground.
"""
