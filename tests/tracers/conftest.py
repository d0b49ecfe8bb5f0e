"""Fixtures for tests of tracers: random but consistent steps."""

import numpy as np
import pytest

from rlcli.types import Estimates, Transition


@pytest.fixture
def random_steps():
    """`(seed, terminate, truncate) -> steps, estimates`: a random walk with ends.

    All observations are distinct, so that tests detect any mix-up.
    """

    def make(seed, terminate=0.15, truncate=0.15):
        rng = np.random.default_rng(seed)
        shape = T, B = 25, 4
        ended = rng.random(shape) < terminate
        last = ended | (rng.random(shape) < truncate)
        obs, next_obs = rng.permutation(2 * T * B).reshape(2, *shape, 1).astype("f4")
        first = np.concatenate([np.ones((1, B), bool), last[:-1]])
        steps = Transition(
            obs=obs,
            action=rng.integers(0, 3, shape),
            reward=rng.normal(size=shape).astype("f4"),
            discount=1.0 - ended.astype("f4"),
            next_obs=next_obs,
            first=first,
            last=last,
            extras={"log_prob": obs[..., 0] + 0.25, "next_carry": next_obs + 0.5},
        )
        v_tm1, v_t, log_prob, q_tm1 = rng.normal(size=(4, *shape)).astype("f4")
        return steps, Estimates(v_tm1, v_t, log_prob, q_tm1)

    return make
