"""Data sets: steps of episodes in a file, to learn from without an environment.

Belongs here: the arrays of a data set, its file format, Minari's data sets.
May import: the ground. `names` imports no JAX.
"""
