"""Offline updaters: learn from a data set, without an environment.

Belongs here: behaviour cloning, and algorithms that keep values and policies close to
the actions of a data set.
May import: `td`, `off_policy`, the shared modules of updaters, and what updaters may
import.
"""
