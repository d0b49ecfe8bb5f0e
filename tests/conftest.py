"""What all tests share. Comes before JAX: the layout is settled here."""

from rlcli import threads

# One thread: vmapped seeds never wait for each other. Two devices share the seeds.
threads.apply(threads.Layout("one", 2))
