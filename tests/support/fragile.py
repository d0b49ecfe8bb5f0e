"""An environment that fails in the third step of every tenth episode."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Fragile(gymnasium.Env):
    """Counts its steps; an episode has eight, unless it fails before."""

    observation_space = spaces.Box(0, 8, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.fails = self.np_random.random() < 0.1
        self.time = 0
        return self._obs(), {}

    def step(self, action):
        self.time += 1
        if self.fails and self.time == 3:
            raise ZeroDivisionError("by nothing")
        return self._obs(), 1.0, self.time == 8, False, {}

    def _obs(self):
        return np.full(1, self.time, np.float32)
