"""Search: `rlcli sweep`, a study whose cells are chosen one after the other.

Belongs here: spaces, trials (Optuna), and what is told about sweeps.
May import: studies, and everything below it.

`space` reads what is searched, and compares it with the recipe. `layout` has the files
and the settings of a sweep, and opens one that exists. `trials` keeps the trials in
Optuna's storage and chooses their options, `objectives` reads how good a trial is, and
`trial_source` chooses, prunes and confirms trials. `summary` and `export_sweep` tell
the results.

A trial is an ordinary run. Optuna's storage is the only record of trials, and the run
folders the only record of their training, so the source has no state that a crash could
lose: trials begin in blocks whose numbers end at a multiple of `together`, and the
field `members` of a run names its group (`grouping`).

`trials` is the only module that knows Optuna, beside the storage backend `journal`.
"""
