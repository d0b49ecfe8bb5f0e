"""Evolution: populations of parameters, selected by their returns.

Belongs here: evolution strategies.
May import: the shared modules of updaters, and what updaters may import.
"""
