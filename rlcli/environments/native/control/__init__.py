"""Control: continuous actions, in two dimensions.

Belongs here: tasks with a Box of actions and dynamics of their own.
May import: `environments.drawing`, other native environments, and the ground.
"""
