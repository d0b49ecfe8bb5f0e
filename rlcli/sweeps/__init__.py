"""Sweeps: search for options of a recipe, with many trials over several seeds.

Belongs here: spaces, trials, the study (Optuna), the driver, what is told about sweeps.
May import: training, results, runs, recipe, and everything below them.

A trial is a run in a folder of its own, `trials/0007`, trained by a process of
`rlcli train` or `rlcli resume`. `space` reads what is searched, `validation` compares
it with the recipe. `study` keeps the trials in Optuna's storage and chooses their
options, `objectives` reads how good a trial is, and `driver` starts, prunes and
confirms trials. `layout` has the files of a sweep; `summary` and `export` read them.

A trial is an ordinary run, and its job is a process that trains it, or a group of runs
that have the same program (`grouping`), or continues them. Optuna's storage is the only
record of trials, and the run folders the only record of their training, so the driver
has no state that a crash could lose: trials begin in blocks whose numbers end at a
multiple of `together`, and the field `members` of a run names its group.

`jobs` knows runs and an `Engine` (processes on this machine, or tasks of Ray), but
neither trials nor Optuna; with `run_storage`, tasks copy runs to an object store, and
`storage_engine`, around the engine, copies them into the sweep's folder, so neither the
driver nor training knows of the store. `study` is the only module that knows Optuna,
beside the sampler `cmaes_sampler` and the storage backend `journal`.
"""
