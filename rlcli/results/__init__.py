"""Results: learning curves and comparisons of finished or unfinished runs.

Belongs here: groups of runs, curves over seeds, statistics of groups, their output.
May import: runs and recipe, and the top-level modules; `report` also evaluation. JAX
is imported by one module only, `report.episodes`.
"""
