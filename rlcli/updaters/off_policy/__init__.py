"""Off-policy actor-critic: policies that maximize learned action values.

Belongs here: DDPG, TD3, SAC and its successors, and their shared core.
May import: the shared modules of updaters, and what updaters may import.
"""
