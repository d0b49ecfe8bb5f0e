"""Evaluation: evaluates and renders fixed policies over whole episodes.

Belongs here: `eval`, `render`, video encoding, and the evaluator that training uses.
May import: runs, assembly, recipe, loop, environments, and the top-level modules.
"""
