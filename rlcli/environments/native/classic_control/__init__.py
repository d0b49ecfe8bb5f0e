"""Classic control: Gymnasium's five environments, with the same dynamics.

Belongs here: CartPole, Acrobot, MountainCar (discrete and continuous) and Pendulum.
May import: `environments.drawing`, `environments.native.core`, and the ground.
"""
