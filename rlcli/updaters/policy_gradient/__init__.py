"""Policy gradients: on-policy actor-critic algorithms, and V-trace.

Belongs here: REINFORCE, A2C, PPO, V-trace, and their shared core.
May import: the shared modules of updaters, and what updaters may import.
"""
