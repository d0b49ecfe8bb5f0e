"""DiscountingChain, compared with bsuite."""

import numpy as np
import pytest
from bsuite.environments import discounting_chain as original
from tiers import quick_first

from rlcli.environments.native.bsuite.chains import (
    DELAYS,
    DiscountingChainState,
    discounting_chain,
)


def state_of(env):
    return DiscountingChainState(np.int32(env._timestep), np.int32(env._context))


@pytest.mark.parametrize("seed", quick_first([0, 3, 17], quick=2))
def test_a_step_matches_bsuite_in_play_and_at_any_time_in_any_chain(
    pair_class, fits, seed
):
    reference, rng = original.DiscountingChain(seed), np.random.default_rng(seed)
    pair = pair_class(discounting_chain(mapping_seed=seed), state_of)
    fits(pair.core, reference)
    pair.play(reference, 12, rng)
    for _ in range(2000):
        reference._context = rng.integers(5)
        near = DELAYS[reference._context] - 1
        reference._timestep = rng.choice([near, rng.integers(100)])
        pair.act(reference, rng.integers(5))
    *_, (_, reward, _, gained) = pair.check()
    assert set(np.round(reward, 3)) == {0.0, 1.0, 1.1}
    assert gained == {}


def test_the_episode_terminates_after_a_hundred_steps(pair_class):
    # gymnax truncates: bootstrapping there predicts rewards that never come.
    pair = pair_class(discounting_chain(), state_of)
    times = np.array([98, 99], np.int32)
    state = DiscountingChainState(times, np.zeros(2, np.int32))
    _, timestep = pair.step(state, np.zeros(2, np.int32), ())
    assert timestep.last.tolist() == [False, True]
    assert timestep.discount.tolist() == [1.0, 0.0]


def test_initial_states_match_bsuite(pair_class):
    state, obs = pair_class(discounting_chain(), state_of).resets(0, 3)
    reference = original.DiscountingChain(0)
    np.testing.assert_array_equal(obs, [reference.reset().observation] * 3)
    assert state.chain.tolist() == [-1] * 3
