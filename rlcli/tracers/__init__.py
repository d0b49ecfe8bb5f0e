"""Tracers: functions that turn steps into rows with returns.

Belongs here: returns and off-policy corrections; the part `tracer`.
May import: the ground.
"""
