"""Studies: several runs as one thing: recipes × environments × values of options.

Belongs here: what the cells of a study are, and how they are trained in processes.
May import: training, and everything below it.

`study_file` reads the file of a study, `study_grid` makes its cells, `shared_programs`
finds those that are trained together, and `process_runs` trains them.
"""
