"""Results: learning curves and comparisons of finished or unfinished runs.

Belongs here: groups of runs, curves over seeds, statistics of groups, their output.
May import: runs and recipe, and the top-level modules; JAX is not imported.
"""
