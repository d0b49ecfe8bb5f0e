"""Tracers: how far along time a transition looks.

Belongs here: returns and off-policy corrections; the part `tracer`.
May import: the ground.
"""
