"""Classic control: Gymnasium's five, with the same dynamics.

Belongs here: CartPole, Acrobot, MountainCar (two of them) and Pendulum.
May import: `environments.drawing`, `environments.native.timesteps`, and the ground.
"""
