"""Evaluation: whole episodes with a policy that does not learn.

Belongs here: `eval`, `render`, films, and the evaluator that training uses, too.
May import: runs, assembly, recipe, loop, environments, and the ground.
"""
