"""Policy gradients: actor-critic algorithms that learn from their own recent steps.

Belongs here: REINFORCE, A2C, PPO, V-trace, and the core they share.
May import: the shared modules of updaters, and what updaters may import.
"""
