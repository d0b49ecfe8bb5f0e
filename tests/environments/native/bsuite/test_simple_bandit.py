"""SimpleBandit, compared with bsuite."""

import jax
import numpy as np
import pytest
from bsuite.environments import bandit as original

from rlcli.environments.native.bsuite.bandits import (
    simple_bandit,
)

BANDITS = [{}, {"mapping_seed": 7}, {"num_actions": 3, "mapping_seed": 19}]


@pytest.mark.parametrize("bandit", BANDITS)
def test_every_arm_pays_as_in_bsuite(pair_class, fits, bandit):
    reference = original.SimpleBandit(**{"mapping_seed": 0, **bandit})
    core = simple_bandit(**bandit)
    fits(core, reference)
    pair = pair_class(core, lambda env: ())
    for arm in range(int(core.action.n)):
        np.testing.assert_array_equal(
            core.reset(jax.random.key(arm))[1], reference.reset()[3]
        )
        pair.act(reference, arm)
    *_, (_, reward, _, gained) = pair.check()
    np.testing.assert_allclose(np.sort(reward), np.linspace(0, 1, len(reward)))
    np.testing.assert_allclose(gained["regret"], 1 - reward)


def test_the_order_of_the_arms_does_not_depend_on_the_key(pair_class):
    # gymnax shuffles the arms at every step, so nothing can be learned.
    pair = pair_class(simple_bandit(), None)
    state, _ = pair.resets(0, 2000)
    arm = (np.arange(2000) % 11).astype(np.int32)
    _, timestep = pair.step(state, arm, pair.noises(1, 2000))
    by_arm = np.asarray(timestep.reward)[: 11 * 181].reshape(181, 11)
    assert np.all(by_arm == by_arm[0])
    assert len(np.unique(by_arm[0])) == 11
