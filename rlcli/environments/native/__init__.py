"""Native environments: written in JAX, compiled with the agent that learns in them.

Belongs here: one package for each family of environments, and what families share.
May import: `environments.drawing`, other modules of this package, and the ground.
"""
