"""bsuite: trains a recipe on the experiments of bsuite, and scores it.

Belongs here: bsuite's table of ids, its scores, their tables and the radar plot.
May import: training, results, runs, recipe, and everything below them. Imports no JAX.
"""
