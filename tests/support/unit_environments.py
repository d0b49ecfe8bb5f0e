"""Environments with unusual units, which record what they are given."""

import gymnasium
import numpy as np
from gymnasium import spaces

LOG = []  # the actions of all environments of this process, as they were given


class Width(gymnasium.Env):
    """Reward −Σ |a/w − target|, in actions of half-width `w`: the same task for all."""

    target = np.array([0.5, -0.25])

    def __init__(self, w: float = 1.0):
        self.w = w
        self.observation_space = spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = spaces.Box(-w, w, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        loss = np.sum(np.abs(np.asarray(action, np.float64) / self.w - self.target))
        return np.zeros(1, np.float32), -float(loss), True, False, {}


class Count(gymnasium.Env):
    """Counts from 3 to 8; the actions, from `start`, have no effect."""

    def __init__(self, start: int = 5, many: bool = False):
        self.observation_space = spaces.Discrete(6, start=3)
        self.action_space = (
            spaces.MultiDiscrete([3, 2], start=[start, -1])
            if many
            else spaces.Discrete(3, start=start)
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 3
        return 3, {}

    def step(self, action):
        assert self.action_space.contains(action)
        LOG.append(np.array(action))
        self.time += 1
        return self.time, 1.0, self.time == 8, False, {}
