"""Export: trained policies as files that run without rlcli.

Belongs here: the greedy policy as a function of named arrays, its graph of operations,
and the writers of StableHLO, ONNX and NumPy.
May import: evaluation, and what is below it.
"""
