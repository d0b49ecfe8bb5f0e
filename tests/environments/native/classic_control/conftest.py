"""Fixtures to compare classic control with Gymnasium."""

import gymnasium
import numpy as np
import pytest


@pytest.fixture(scope="session")
def steps_of():
    """A function that takes one step of Gymnasium from each state, as arrays."""

    def steps(name, states, actions, **attributes):
        env = gymnasium.make(name).unwrapped
        env.reset(seed=0)
        for attribute, value in attributes.items():
            setattr(env, attribute, value)
        results = []
        for state, action in zip(states, actions, strict=True):
            env.state = state
            results.append(env.step(action)[:3])
        return tuple(np.array(column) for column in zip(*results, strict=True))

    return steps


@pytest.fixture(scope="session")
def visited_states():
    """A function that returns the states of a random policy in Gymnasium."""

    def states(name, episodes, steps=100):
        env = gymnasium.make(name).unwrapped
        env.action_space.seed(1)
        visited = []
        for episode in range(episodes):
            env.reset(seed=episode)
            for _ in range(steps):
                visited.append(np.asarray(env.state))
                if env.step(env.action_space.sample())[2]:
                    break
        return np.array(visited, np.float32)

    return states
