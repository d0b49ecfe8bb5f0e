"""Fixtures to compare tasks with bsuite's, step by step."""

import dm_env
import jax
import numpy as np
import pytest

# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}


class TaskPair:
    """A task of bsuite (`reference`) and the same task of rlcli.

    `state_of` converts a state of the reference to a state of rlcli's task. `plain`
    selects the compared part of a batch of states.
    """

    def __init__(self, core, state_of, plain=lambda state: state):
        self.core, self.state_of, self.plain = core, state_of, plain
        self.rows = []
        self.step = jax.jit(jax.vmap(core.step), compiler_options=FAST_COMPILE)
        self.reset = jax.jit(jax.vmap(core.reset), compiler_options=FAST_COMPILE)
        self.draw = jax.jit(jax.vmap(core.draw), compiler_options=FAST_COMPILE)

    def resets(self, seed, number):
        """The initial states and observations of rlcli's task."""
        keys = jax.random.split(jax.random.key(seed), number)
        return jax.tree.map(np.asarray, self.reset(keys))

    def noises(self, seed, number):
        """The noise of rlcli's task."""
        keys = jax.random.split(jax.random.key(seed), number)
        return jax.tree.map(np.asarray, self.draw(keys))

    def act(self, reference, action, noise=()):
        """Steps the reference, and records the step for `check`."""
        reference._reset_next_step = False
        before, counts = self.state(reference), counters(reference)
        timestep = reference.step(int(action))
        gained = {k: count - counts[k] for k, count in counters(reference).items()}
        seen = (timestep.observation, timestep.reward, timestep.last(), gained)
        row = (before, np.int32(action), noise, self.state(reference), seen)
        self.rows.append(row)
        return timestep

    def play(self, reference, episodes, rng):
        """Plays whole episodes with random actions."""
        for _ in range(episodes):
            timestep = reference.reset()
            while not timestep.last():
                action = rng.integers(reference.action_spec().num_values)
                timestep = self.act(reference, action)

    def state(self, reference):
        return jax.tree.map(np.asarray, self.state_of(reference))

    def check(self, rtol=1e-6, atol=0.0):
        """Compares all steps since the last check; returns them as arrays."""
        rows = jax.tree.map(lambda *leaves: np.stack(leaves), *self.rows)
        self.rows = []
        before, action, noise, after, (obs, reward, last, gained) = rows
        actual, timestep = jax.device_get(self.step(before, action, noise))

        def close(a, b):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)

        jax.tree.map(close, self.plain(actual), self.plain(after))
        space = self.core.observation
        assert np.all((obs >= space.low) & (obs <= space.high))
        close(timestep.next_obs, obs)
        close(timestep.obs, obs)
        close(timestep.reward, reward)
        np.testing.assert_array_equal(timestep.last, last)
        np.testing.assert_array_equal(timestep.discount, 1.0 - last)
        assert timestep.info.keys() == gained.keys()
        for name, value in timestep.info.items():
            np.testing.assert_allclose(value, gained[name], rtol=rtol, atol=1e-6)
        return rows


def counters(reference):
    """The counters of bsuite that are sums."""
    counts = reference.bsuite_info()
    return {
        name.removeprefix("total_"): value
        for name, value in counts.items()
        if name != "best_episode"
    }


@pytest.fixture(scope="session")
def pair_class():
    """The class of a bsuite task and the same task of rlcli."""
    return TaskPair


@pytest.fixture(scope="session")
def fits():
    """A function that checks the spaces of a task against the specs of bsuite."""

    def check(core, reference):
        spec = reference.observation_spec()
        assert core.observation.shape == spec.shape
        assert core.observation.dtype == spec.dtype
        assert core.action.n == reference.action_spec().num_values
        if isinstance(spec, dm_env.specs.BoundedArray):  # other specs have no bounds
            np.testing.assert_array_equal(core.observation.low, spec.minimum)
            np.testing.assert_array_equal(core.observation.high, spec.maximum)

    return check
