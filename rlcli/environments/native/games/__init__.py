"""Games: the opponent is part of the environment.

Belongs here: board and video games written in JAX.
May import: `environments.drawing`, `environments.native.core`, and the ground.
"""
