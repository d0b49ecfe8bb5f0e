"""Studies: several runs as one thing: recipes × environments × values of options.

Belongs here: what the cells of a study are, how they are chosen, and how they are
trained: in processes, on a cluster.
May import: training, results, and everything below them.

`study_file` reads the file of a study, `study_grid` makes its cells, `shared_programs`
finds those that are trained together, and `study_loop` trains them, on an engine of
`engines`. It asks a source for more cells when others have ended: `seed_blocks` adds
seeds until a claim is decided, `search` chooses options. `bsuite` are the cells of a
benchmark.
"""
