"""Networks: torsos, memories and heads, and the functions that are made of them.

Belongs here: what maps observations or features to numbers, and the part `network`.
May import: distributions, and the ground.
"""
