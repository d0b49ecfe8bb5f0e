"""Native environments: written in JAX and compiled together with the agent.

Belongs here: one package for each family of environments, and shared modules.
May import: `environments.drawing`, other modules of this package, and the ground.
"""
