"""Sweeps: search for options of a recipe, with many trials over several seeds.

Belongs here: spaces, trials, the study (Optuna), the driver, what is told about sweeps.
May import: training, results, runs, recipe, and everything below them.

A trial is a run in a folder of its own, `trials/0007`, trained by a process of
`rlcli train` or `rlcli resume`. `space` reads what is searched, `validation` compares
it with the recipe. `study` keeps the trials in Optuna's storage and chooses their
options, `objectives` reads how good a trial is, and `driver` starts, prunes and
confirms trials. `layout` has the files of a sweep; `summary` and `export` read them.
"""
