"""Games: against an opponent that is part of the environment.

Belongs here: board and video games that are written in JAX.
May import: `environments.drawing`, `environments.native.timesteps`, and the ground.
"""
