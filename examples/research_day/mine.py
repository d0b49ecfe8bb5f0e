"""What a researcher brings: an environment, a wrapper, a network and a curriculum."""

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Dict

from rlcli.networks.torsos import Torso
from rlcli.training import Hook
from rlcli.types import Count


class Reach(gymnasium.Env):
    """A hand in a square reaches the marked one of several objects.

    The reward is how much nearer the hand has come, and 1 at the goal.
    """

    def __init__(self, objects: int = 3, radius: float = 0.15):
        self.objects, self.radius = objects, radius
        self.observation_space = Dict(
            hand=Box(-1, 1, (2,)),
            objects=Box(-2, 2, (objects, 3)),  # x and y from the hand, and the mark
        )
        self.action_space = Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hand = self.np_random.uniform(-1, 1, 2)
        self.places = self.np_random.uniform(-1, 1, (self.objects, 2))
        self.goal = self.np_random.integers(self.objects)
        return self._observe(), {}

    def step(self, action):
        before = self._distance()
        self.hand = np.clip(self.hand + 0.2 * np.clip(action, -1, 1), -1, 1)
        success = self._distance() < self.radius
        reward = before - self._distance() + success
        return self._observe(), float(reward), success, False, {"success": success}

    def _distance(self):
        return float(np.linalg.norm(self.places[self.goal] - self.hand))

    def _observe(self):
        marks = np.eye(self.objects)[:, [self.goal]]
        objects = np.concatenate([self.places - self.hand, marks], axis=1)
        return {"hand": np.float32(self.hand), "objects": np.float32(objects)}


class Effort(gymnasium.Wrapper):
    """Takes the effort of an action from the reward, and reports it in `info`."""

    def __init__(self, env: gymnasium.Env, weight: float = 0.02):
        super().__init__(env)
        self.weight = weight

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        effort = float(np.square(action).sum())
        info["effort"] = effort
        return obs, reward - self.weight * effort, terminated, truncated, info


def net(*, width: Count = 32, heads: Count = 2) -> Torso:
    """Attention: the hand looks at a set of objects, in any order and number."""

    def features(obs):  # {"hand": [N, 2], "objects": [N, K, 3]} -> [N, 2 · width]
        hand = jax.nn.tanh(hk.Linear(width)(obs["hand"]))
        objects = jax.nn.tanh(hk.Linear(width)(obs["objects"]))
        attention = hk.MultiHeadAttention(
            heads,
            width // heads,
            w_init=hk.initializers.VarianceScaling(),
            model_size=width,
        )
        seen = attention(hand[:, None], objects, objects)[:, 0]
        return jnp.concatenate([hand, seen], axis=-1)

    def output(size, scale):
        return hk.Linear(size, w_init=hk.initializers.VarianceScaling(scale**2))

    return Torso(features, output)


class Curriculum(Hook):
    """Begins with a large goal, which shrinks as training succeeds."""

    def __init__(self, *, start: float = 0.6, end: float = 0.15) -> None:
        self.end = end
        self.state = {"radius": start}

    def on_log(self, chunk) -> None:
        rates = [row["success"] for row in chunk.rows if "success" in row]
        if rates and np.mean(rates) > 0.7:
            self.state["radius"] = max(self.end, 0.8 * self.state["radius"])
        chunk.set("environment.radius", self.state["radius"])
        chunk.log({"goal_radius": self.state["radius"]})
