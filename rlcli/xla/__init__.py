"""XLA: the performance of compiled programs, and their use of the machine.

Belongs here: fusion barriers, random bits, packing, threads, the compilation cache.
May import: types and errors. Threads, pinning, switches and the cache import no JAX.
"""
