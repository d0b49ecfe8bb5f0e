"""Fixtures to compare levels with MiniGrid's."""

import functools
from typing import NamedTuple

import gymnasium
import jax
import numpy as np
import pytest

from rlcli import registry
from rlcli.environments.native.minigrid import cells, levels
from rlcli.environments.native.minigrid.game import MiniGridState

# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}
pack_cell = jax.jit(cells.pack_cell)
DOORS = {0: cells.OPEN_DOOR, 1: cells.CLOSED_DOOR, 2: cells.LOCKED_DOOR}


class Seen(NamedTuple):
    """What both libraries return for a step, and the state after it."""

    image: np.ndarray
    direction: int
    reward: float
    terminated: bool
    grid: np.ndarray
    position: np.ndarray
    carrying: int


class LevelPair:
    """A level of MiniGrid (`reference`) and the same level of rlcli (`core`)."""

    def __init__(self, name, **options):
        minigrid = pytest.importorskip("minigrid")
        self.objects = minigrid.core.world_object
        self.reference = gymnasium.make(name, disable_env_checker=True, **options)
        self.reference = self.reference.unwrapped
        self.reference.reset(seed=0)
        self.part = registry.find("environment", name)
        self.core = self.part.factory(**options)
        self.reset = jax.jit(jax.vmap(self.core.reset), compiler_options=FAST_COMPILE)
        self.step = jax.jit(
            jax.vmap(self._observed_step), compiler_options=FAST_COMPILE
        )

    def resets(self, seed, number):
        """The initial states and observations of rlcli's level."""
        keys = jax.random.split(jax.random.key(seed), number)
        return jax.tree.map(np.asarray, self.reset(keys))

    def reset_reference(self, seed):
        """Resets the reference; returns its state, as a state of rlcli."""
        self.reference.reset(seed=seed)
        return self.state()

    def state(self):
        """The state of the reference, as a state of rlcli."""
        env = self.reference
        carrying = env.carrying.encode() if env.carrying else (1, 0, 0)
        return MiniGridState(
            packed(env.grid.encode()),
            np.array(env.agent_pos, np.int32),
            np.int32(env.agent_dir),
            packed(np.array(carrying)),
            np.int32(env.step_count),
            self._task(),
        )

    def set_state(self, state):
        """Puts the reference into a state of rlcli."""
        env = self.reference
        decode = self.objects.WorldObj.decode
        for x, y in np.ndindex(state.grid.shape):
            env.grid.set(x, y, decode(*encoded(int(state.grid[x, y]))))
        env.agent_pos = tuple(state.position.tolist())
        env.agent_dir = int(state.direction)
        env.carrying = decode(*encoded(int(state.carrying)))
        env.step_count = int(state.steps)
        if isinstance(state.task, levels.Ends):
            x, success_y, failure_y = (int(leaf) for leaf in state.task)
            env.success_pos, env.failure_pos = (x, success_y), (x, failure_y)
        elif not isinstance(state.task, tuple):
            balls = [c for c in env.grid.grid if isinstance(c, self.objects.Ball)]
            env.obj = balls[0] if balls else env.carrying

    def check_steps(self, states, actions):
        """Compares one step from each of many states."""
        after, timestep = jax.device_get(self.step(states, np.asarray(actions)))
        results = []
        for index, action in enumerate(actions):
            self.set_state(jax.tree.map(lambda leaf, i=index: leaf[i], states))
            results.append(self._act(action))
        expected = jax.tree.map(lambda *leaves: np.stack(leaves), *results)
        self._equal(self._seen(after, timestep), expected)

    def check_play(self, seed, episodes, steps):
        """Plays whole episodes with random actions; compares every step."""
        rng = np.random.default_rng(seed)
        first, obs = self.resets(seed, episodes)
        actions = rng.choice(
            7, (steps, episodes), p=[0.1, 0.1, 0.4, 0.1, 0.1, 0.1, 0.1]
        )
        states, played = first, []
        for action in actions:
            states, timestep = self.step(states, action)
            played.append(jax.device_get((states, timestep)))
        num_ends = 0
        for episode in range(episodes):
            self.set_state(jax.tree.map(lambda leaf, i=episode: leaf[i], first))
            seen = self.reference.gen_obs()
            np.testing.assert_array_equal(obs["image"][episode], seen["image"])
            for action, (states, timestep) in zip(
                actions[:, episode], played, strict=True
            ):
                expected = self._act(action)
                found = self._seen(states, timestep)
                found = jax.tree.map(lambda leaf, i=episode: leaf[i], found)
                self._equal(found, expected)
                if expected.terminated:
                    num_ends += 1
                    break
        return num_ends

    def _observed_step(self, state, action):
        return self.core.step(state, action, ())

    def _act(self, action):
        obs, reward, terminated, _, _ = self.reference.step(int(action))
        state = self.state()
        return Seen(
            obs["image"],
            obs["direction"],
            reward,
            terminated,
            state.grid,
            state.position,
            state.carrying,
        )

    def _seen(self, states, timestep):
        """The same of a batch of rlcli's steps."""
        np.testing.assert_array_equal(timestep.discount, 1.0 - timestep.last)
        obs = timestep.obs
        return Seen(
            obs["image"],
            obs["direction"],
            timestep.reward,
            timestep.last,
            states.grid,
            states.position,
            states.carrying,
        )

    def _equal(self, found, expected):
        for name, value in expected._asdict().items():
            np.testing.assert_allclose(
                getattr(found, name), value, atol=1e-6, err_msg=name
            )

    def _task(self):
        env = self.reference
        if hasattr(env, "success_pos"):
            x, success_y = env.success_pos
            return levels.Ends(
                np.int32(x), np.int32(success_y), np.int32(env.failure_pos[1])
            )
        return np.int32(env.obj.encode()[1]) if hasattr(env, "obj") else ()


def packed(encoded):
    """MiniGrid's encoding `[..., 3]` as packed cells."""
    objects, colours, states = np.moveaxis(np.asarray(encoded), -1, 0)
    is_door = objects == cells.OPEN_DOOR
    kinds = np.where(is_door, np.choose(states, list(DOORS.values())), objects)
    return np.asarray(pack_cell(kinds, colours))


@functools.cache
def encoded(cell):
    """A packed cell as MiniGrid's object, colour and state."""
    cell = np.uint8(cell)
    kind, colour = int(cells.kind_of(cell)), int(cells.colour_of(cell))
    states = {door: state for state, door in DOORS.items()}
    return (cells.OPEN_DOOR if kind in states else kind), colour, states.get(kind, 0)


@pytest.fixture(scope="session")
def pair_class():
    """The class of a level of MiniGrid and the same level of rlcli."""
    return LevelPair
