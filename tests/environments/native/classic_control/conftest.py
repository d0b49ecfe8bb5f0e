"""What the tests beside Gymnasium's classic control share."""

import gymnasium
import numpy as np
import pytest


@pytest.fixture(scope="session")
def steps_of():
    """A function: one step of Gymnasium's from each state, as arrays."""

    def steps(name, states, actions, **attributes):
        env = gymnasium.make(name).unwrapped
        env.reset(seed=0)
        for attribute, value in attributes.items():
            setattr(env, attribute, value)
        answers = []
        for state, action in zip(states, actions, strict=True):
            env.state = state
            answers.append(env.step(action)[:3])
        return tuple(np.array(each) for each in zip(*answers, strict=True))

    return steps


@pytest.fixture(scope="session")
def visited_states():
    """A function: states that a random policy comes to in Gymnasium."""

    def states(name, episodes, steps=100):
        env = gymnasium.make(name).unwrapped
        env.action_space.seed(1)
        found = []
        for episode in range(episodes):
            env.reset(seed=episode)
            for _ in range(steps):
                found.append(np.asarray(env.state))
                if env.step(env.action_space.sample())[2]:
                    break
        return np.array(found, np.float32)

    return states
