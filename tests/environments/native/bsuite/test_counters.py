"""The metrics of a run, compared with bsuite's counters."""

import jax
import numpy as np
import pytest
from bsuite.environments.cartpole import Cartpole
from bsuite.environments.catch import Catch
from bsuite.environments.memory_chain import MemoryChain

import rlcli
from rlcli.loop.episode_statistics import EpisodeStatistics, update_statistics
from rlcli.runs.statistics import statistics_row
from rlcli.types import TimeStep

TASKS = {
    "bsuite/Catch": Catch(seed=1),
    "bsuite/Cartpole": Cartpole(seed=1),
    "bsuite/MemoryChain": MemoryChain(memory_length=3, seed=1),
}


def nothing_yet(logged):
    """The statistics of a run with one environment that logs the named counters."""
    zero, zeros = np.float32(0), np.zeros(1, np.float32)
    return EpisodeStatistics(
        zeros,
        np.zeros(1, np.int32),
        np.int32(0),
        zero,
        zero,
        zero,
        running_info=dict.fromkeys(logged, zeros),
        last_info=dict.fromkeys(logged, zero),
        total_info=dict.fromkeys(logged, zero),
        max_info=dict.fromkeys(logged, np.float32(-np.inf)),
    )


@pytest.mark.parametrize("name", TASKS)
def test_metrics_match_the_counters_of_bsuite(name):
    reference, core = TASKS[name], rlcli.make(name)
    key = jax.random.key(0)
    state, _ = jax.eval_shape(core.reset, key)
    logged = jax.eval_shape(core.step, state, np.int32(0), key)[1].info
    statistics = nothing_yet(logged)
    count, rng = jax.jit(update_statistics), np.random.default_rng(0)
    for _ in range(30):
        timestep = reference.reset()
        while not timestep.last():
            before = reference.bsuite_info()
            timestep = reference.step(
                int(rng.integers(reference.action_spec().num_values))
            )
            gained = {
                each.removeprefix("total_"): np.float32([value - before[each]])
                for each, value in reference.bsuite_info().items()
                if each != "best_episode"
            }
            assert gained.keys() == logged.keys()
            answer = TimeStep(
                (), (), np.float32([0]), None, np.array([timestep.last()]), gained
            )
            statistics = count(statistics, answer)
    arrays = jax.device_get(statistics._asdict())
    row = statistics_row(jax.tree.map(lambda leaf: leaf[None], arrays), (0,))
    expected = reference.bsuite_info()
    if "best_episode" in expected:
        assert row["max_raw_return"] == pytest.approx(expected.pop("best_episode"))
    for each, value in expected.items():
        ours = row["total_" + each.removeprefix("total_")]
        assert ours == pytest.approx(value, rel=1e-4), each
    assert any(expected.values())
