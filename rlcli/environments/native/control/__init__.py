"""Control: continuous actions in two dimensions.

Belongs here: tasks with a Box of actions that are not among Gymnasium's.
May import: `environments.drawing`, other native environments, and the ground.
"""
