"""Grid worlds: cells and walls.

Belongs here: grid worlds, and the parsing of their maps.
May import: `environments.drawing`, other native environments, and the ground.
"""
