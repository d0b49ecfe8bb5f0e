"""Off-policy actor-critic: policies that maximize learned action values.

Belongs here: DDPG, TD3, SAC, and the core they share.
May import: the shared modules of updaters, and what updaters may import.
"""
