"""XLA: what compiled programs are made of, and how they use the machine.

Belongs here: fusion barriers, random bits, packing, threads, the compilation cache.
May import: types and errors. Threads, pinning and the cache import no JAX.
"""
