"""Grid: worlds of cells, with walls.

Belongs here: grid worlds, and how their maps are read.
May import: `environments.drawing`, other native environments, and the ground.
"""
