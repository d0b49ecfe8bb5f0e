"""Goal environments: every episode has its own goal, and any state may be one.

Belongs here: environments whose reward is a function of the achieved and desired goal.
May import: `environments.drawing`, other native environments, and the ground.
"""
