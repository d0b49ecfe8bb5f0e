"""Model-based learning: transition models and planning.

Belongs here: learned and known models, value learning with them, MuZero.
May import: the shared modules of updaters, and what updaters may import.
"""
