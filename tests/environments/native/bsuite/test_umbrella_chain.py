"""UmbrellaChain, compared with bsuite."""

import numpy as np
import pytest
from bsuite.environments import umbrella_chain as original
from scipy import stats
from tiers import quick_first

from rlcli.environments.native.bsuite.chains import (
    UmbrellaChainState,
    umbrella_chain,
)

CHAINS = [{}, {"chain_length": 1}, {"chain_length": 20, "n_distractor": 40}]


class ScriptedCoins:
    """Replaces NumPy's generator: returns scripted coins."""

    def __init__(self):
        self.coins = []

    def binomial(self, number, probability, size=None):
        assert (number, probability) == (1, 0.5)
        if size is None:
            return self.coins.pop(0)
        tossed, self.coins = self.coins[:size], self.coins[size:]
        return np.array(tossed)


def state_of(env):
    return UmbrellaChainState(
        np.int32(env._timestep),
        np.bool_(env._need_umbrella),
        np.bool_(env._has_umbrella),
    )


@pytest.mark.parametrize("chain", quick_first(CHAINS, quick=2))
def test_a_step_matches_bsuite_at_any_time_with_the_same_coins(pair_class, fits, chain):
    reference = original.UmbrellaChain(**{"chain_length": 10, **chain}, seed=1)
    pair, rng = pair_class(umbrella_chain(**chain), state_of), np.random.default_rng(3)
    fits(pair.core, reference)
    coin_source = reference._rng = ScriptedCoins()
    number, length = 1200, reference._chain_length
    coins = pair.noises(0, number)
    for i in range(number):
        reference._timestep = rng.choice([0, length - 1, rng.integers(length)])
        reference._need_umbrella, reference._has_umbrella = rng.integers(2, size=2)
        # The last reward is not random.
        over = reference._timestep == length - 1
        coin_source.coins = coins[i, int(over) :].astype(int).tolist()
        pair.act(reference, rng.integers(2), coins[i])
        assert not coin_source.coins
    *_, (_, reward, last, gained) = pair.check()
    assert np.sum(last) > 200
    assert 80 < np.sum(gained["regret"] == 2) < np.sum(last)
    assert np.all(np.abs(reward) == 1)


def test_all_coins_are_fair_and_independent(pair_class):
    pair = pair_class(umbrella_chain(n_distractor=33), state_of)
    state, obs = pair.resets(0, 4000)
    begun = np.concatenate(
        [state.needed[:, None], state.had[:, None], obs[:, 0, 3:] == 1], axis=1
    )
    for coins in (begun, pair.noises(1, 4000)):
        ones = [int(each) for each in coins.sum(axis=0)]
        assert min(stats.binomtest(each, 4000).pvalue for each in ones) > 0.001 / 35
        correlation = np.corrcoef(coins.T) - np.eye(coins.shape[1])
        assert np.max(np.abs(correlation)) < 4.5 / np.sqrt(4000)


def test_initial_states_match_bsuite(pair_class):
    pair = pair_class(umbrella_chain(n_distractor=2), state_of)
    reference = original.UmbrellaChain(10, 2)
    coin_source = reference._rng = ScriptedCoins()
    state, obs = pair.resets(0, 100)
    for i in range(100):
        pieces = (state.needed[i], state.had[i], *obs[i, 0, 3:])
        coin_source.coins = [int(each) for each in pieces]
        np.testing.assert_array_equal(reference.reset().observation, obs[i])
