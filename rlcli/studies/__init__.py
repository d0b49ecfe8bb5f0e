"""Studies: several runs as one thing: recipes × environments × values of options.

Belongs here: what the cells of a study are, how they are chosen, and how they are
trained: in processes, on a cluster.
May import: training, results, and everything below them.

`study_file` reads the file of a study, `study_grid` makes its cells, `shared_programs`
finds those that are trained together, and `process_runs` trains them. `seed_blocks`
adds seeds until a claim is decided, `search` chooses cells one after the other,
`bsuite` are those of a benchmark, and `engines` run the processes.
"""
