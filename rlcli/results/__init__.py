"""Results: learning curves and comparisons of finished or unfinished runs.

Belongs here: groups of runs, curves over seeds, statistics of groups, their output.
May import: runs, recipe, and the ground; `report` also evaluation and trackers. Only
its `episode_views`, `replayed_episodes` and `update_views` import JAX.
"""
