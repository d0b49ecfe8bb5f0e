"""Several: many runs at once, in one program or in processes of their own.

Belongs here: the plan of runs, the pool of processes, train_all, resume_all.
May import: everything else of training, and everything below it.
"""
