"""What the tests beside bsuite share: its tasks and ours, step by step."""

import dm_env
import jax
import numpy as np
import pytest

# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}


class Beside:
    """One of bsuite's tasks beside ours.

    `state_of` reads a state of ours out of theirs; `plain` makes of a batch of states
    what is compared.
    """

    def __init__(self, core, state_of, plain=lambda state: state):
        self.core, self.state_of, self.plain = core, state_of, plain
        self.rows = []
        self.step = jax.jit(jax.vmap(core.step), compiler_options=FAST_COMPILE)
        self.reset = jax.jit(jax.vmap(core.reset), compiler_options=FAST_COMPILE)
        self.draw = jax.jit(jax.vmap(core.draw), compiler_options=FAST_COMPILE)

    def resets(self, seed, number):
        """States and observations that ours begin with."""
        keys = jax.random.split(jax.random.key(seed), number)
        return jax.tree.map(np.asarray, self.reset(keys))

    def noises(self, seed, number):
        """What ours draw."""
        keys = jax.random.split(jax.random.key(seed), number)
        return jax.tree.map(np.asarray, self.draw(keys))

    def act(self, theirs, action, noise=()):
        """One step of theirs; what came of it is kept for `check`."""
        theirs._reset_next_step = False
        before, counted = self.state(theirs), counters(theirs)
        timestep = theirs.step(int(action))
        gained = {k: each - counted[k] for k, each in counters(theirs).items()}
        seen = (timestep.observation, timestep.reward, timestep.last(), gained)
        row = (before, np.int32(action), noise, self.state(theirs), seen)
        self.rows.append(row)
        return timestep

    def play(self, theirs, episodes, rng):
        """Whole episodes at random."""
        for _ in range(episodes):
            timestep = theirs.reset()
            while not timestep.last():
                action = rng.integers(theirs.action_spec().num_values)
                timestep = self.act(theirs, action)

    def state(self, theirs):
        return jax.tree.map(np.asarray, self.state_of(theirs))

    def check(self, rtol=1e-6, atol=0.0):
        """Every step since the last check is ours; what they were, as arrays."""
        rows = jax.tree.map(lambda *each: np.stack(each), *self.rows)
        self.rows = []
        before, action, noise, after, (obs, reward, last, gained) = rows
        found, timestep = self.step(before, action, noise)

        def close(a, b):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)

        jax.tree.map(close, self.plain(found), self.plain(after))
        space = self.core.observation
        assert np.all((obs >= space.low) & (obs <= space.high))
        close(timestep.next_obs, obs)
        close(timestep.obs, obs)
        close(timestep.reward, reward)
        np.testing.assert_array_equal(timestep.last, last)
        np.testing.assert_array_equal(timestep.discount, 1.0 - last)
        assert timestep.info.keys() == gained.keys()
        for name, each in timestep.info.items():
            np.testing.assert_allclose(each, gained[name], rtol=rtol, atol=1e-6)
        return rows


def counters(theirs):
    """What bsuite has counted so far, but for what is no sum."""
    counted = theirs.bsuite_info()
    return {
        name.removeprefix("total_"): value
        for name, value in counted.items()
        if name != "best_episode"
    }


@pytest.fixture(scope="session")
def pair_class():
    """The class of pairs: one of bsuite's tasks and ours."""
    return Beside


@pytest.fixture(scope="session")
def fits():
    """A function: whether the spaces of ours are those that bsuite specifies."""

    def check(core, theirs):
        spec = theirs.observation_spec()
        assert core.observation.shape == spec.shape
        assert core.observation.dtype == spec.dtype
        assert core.action.n == theirs.action_spec().num_values
        if isinstance(spec, dm_env.specs.BoundedArray):  # else nobody says it
            np.testing.assert_array_equal(core.observation.low, spec.minimum)
            np.testing.assert_array_equal(core.observation.high, spec.maximum)

    return check
