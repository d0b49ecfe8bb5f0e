"""Export: trained policies as files that run without rlcli.

Belongs here: the greedy policy as a function of named arrays, its graph of operations,
and the writers of StableHLO, ONNX and NumPy.
May import: evaluation, and what is below it.

`export.policy_function` makes the greedy policy a function of named arrays for one
observation, and `vmap` adds the batch. `export.graph` traces it with a symbolic batch
size and inlines calls; operations on constants are computed at once. NumPy and ONNX are
two writers of that graph. A new primitive is composed of others in `export.graph`, an
entry in `export.operators.ELEMENTWISE`, or a function in each writer, and a case in
`tests/evaluation/export/test_operators.py`. jax2onnx would do the same for ONNX alone,
and brings Flax, Equinox, Orbax and a model viewer.
"""
