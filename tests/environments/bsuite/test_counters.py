"""What a run's metrics say of bsuite's tasks, beside what bsuite counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bsuite.environments.cartpole import Cartpole
from bsuite.environments.catch import Catch
from bsuite.environments.memory_chain import MemoryChain

from rlcli import progress, recipe
from rlcli.build import build
from rlcli.statistics import of_episodes
from rlcli.types import TimeStep

TASKS = {
    "bsuite/Catch": Catch(seed=1),
    "bsuite/Cartpole": Cartpole(seed=1),
    "bsuite/MemoryChain": MemoryChain(memory_length=3, seed=1),
}


def begun(name):
    """The statistics of a run of that environment, of one seed, that has just begun."""
    data = {"environment": name, "network": "linear", "updater": "q_learning"}
    setup = build(recipe.load(data | {"train": {"steps": 1_000}}))
    environment, _ = setup.parts(progress.midnight())
    state, obs = environment.reset(jax.random.key(0))
    logged = progress.said(environment, state)
    return progress.begin(setup, jnp.uint32(0), state, obs, logged).statistics


@pytest.mark.parametrize("name", TASKS)
def test_metrics_say_what_bsuite_counts(name):
    theirs, statistics = TASKS[name], begun(name)
    count, rng = jax.jit(progress.counted), np.random.default_rng(0)
    for _ in range(30):
        timestep = theirs.reset()
        while not timestep.last():
            before = theirs.bsuite_info()
            timestep = theirs.step(int(rng.integers(theirs.action_spec().num_values)))
            gained = {
                each.removeprefix("total_"): np.float32([value - before[each]])
                for each, value in theirs.bsuite_info().items()
            }
            answer = TimeStep(
                (), (), np.float32([0]), None, np.array([timestep.last()]), gained
            )
            statistics = count(statistics, answer)
    row = of_episodes(jax.tree.map(lambda leaf: leaf[None], statistics._asdict()), 0)
    counted = theirs.bsuite_info()
    if "best_episode" in counted:
        assert row["max_raw_return"] == pytest.approx(counted.pop("best_episode"))
    for each, value in counted.items():
        ours = row["total_" + each.removeprefix("total_")]
        assert ours == pytest.approx(value, rel=1e-4), each
    assert len(set(counted.values()) - {0}) >= 1
