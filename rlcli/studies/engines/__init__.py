"""Engines: processes of `rlcli` on this machine, on a Ray cluster, or of SLURM.

Belongs here: jobs, what runs their processes, and copies of runs in an object store.
May import: runs, training, and everything below them.

A job is a process that trains a run, or a group of runs that have the same program, or
continues them. `jobs` knows runs and an `Engine`, but neither cells nor Optuna. With a
storage of runs, tasks copy runs to an object store, and `storage_engine`, around the
engine, copies them into the folder of the study, so neither what starts jobs nor
training knows of the store.
"""
