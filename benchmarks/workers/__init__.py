"""Processes that train with other libraries, each run by a Python that has the library.

They import nothing of rlcli. `benchmarks.peers` starts them.
"""
