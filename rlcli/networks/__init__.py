"""Networks: torsos, recurrent cores and heads, and the functions that combine them.

Belongs here: functions of observations or features, and the part `network`.
May import: distributions, and the ground.
"""
