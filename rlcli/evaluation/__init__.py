"""Evaluation: evaluates and renders fixed policies, and acts with them.

Belongs here: `eval`, `render`, video encoding, the evaluator that training uses,
`load`, and the export of policies.
May import: runs, and everything below it.
"""
