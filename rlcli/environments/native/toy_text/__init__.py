"""Toy text: Gymnasium's tabular environments.

Belongs here: environments with few states, and tables of their transitions.
May import: `environments.drawing`, `environments.native.core`, and the ground.
"""
