"""MiniGrid: grid worlds with a partial view, keys and doors, with MiniGrid's rules.

Belongs here: the engine, one module for each family of levels.
May import: `native.core`, `environments.drawing`, and the ground.
"""
