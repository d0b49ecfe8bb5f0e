"""Batches of which a fraction comes from a data set."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data_sets import bandit_data, write_data
from tiers import quick_first
from wording import mentions

from rlcli import loop
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.replays.prioritized import prioritized
from rlcli.replays.uniform import uniform
from rlcli.types import Transition

PROBE = {
    "environment": {"name": "probe-reward-depends-on-action", "num_envs": 2},
    "updater": "q_learning",
    "network": "linear",
    "policy": "random",
    "train": {"steps": 64, "unroll": 2},
}


def steps(number: np.ndarray) -> Transition:
    """Steps that their numbers tell apart."""
    flags = np.zeros(number.shape, bool)
    ones = np.ones(number.shape, np.float32)
    return Transition(number, number, number, ones, number, flags, flags, {})


@pytest.mark.parametrize(
    ("name", "fraction"), quick_first([("uniform", 0.25), ("prioritized", 0.5)])
)
def test_a_fraction_of_each_batch_comes_from_the_data(tmp_path, name, fraction):
    file = str(write_data(tmp_path / "data.npz", bandit_data(0.5)))
    replay = {"name": name, "capacity": 32, "batch_size": 16}
    replay |= {"prefill": file, "prefill_fraction": fraction}
    setup = build(load_recipe({**PROBE, "replay": replay}))
    engine = loop.make_loop(setup)
    progress, _ = engine.advance(engine.begin(), 20)  # the ring has wrapped
    assert jax.tree.leaves(progress.agent.replay)
    data = setup.data()
    assert len(data.reward) == 600  # more than the ring holds: nothing is added to it
    inside = setup.agent.inside
    state, unroll = (
        jax.tree.map(lambda leaf: leaf[0], each)
        for each in (progress.agent, progress.unroll)
    )
    stored, _ = inside.contents(state, 20, unroll, data, 1_000)
    assert stored == 32


@pytest.mark.slow
def test_rows_of_both_kinds_have_the_requested_numbers(tmp_path):
    file = str(write_data(tmp_path / "data.npz", bandit_data(0.5)))
    replay = uniform(
        1, 4, 2, capacity=40, batch_size=20, prefill=file, prefill_fraction=0.25
    )
    assert replay.traits.batch_size == 20
    assert replay.traits.keeps_dataset
    own = steps(np.arange(8, dtype=np.float32).reshape(4, 2))
    state = replay.add(replay.init(own), own, jnp.int32(0))
    data = steps(np.arange(100, 150, dtype=np.float32))
    drawn = [
        replay.sample((state, data), jnp.int32(1), replay.draw(jax.random.key(seed)))
        for seed in range(40)
    ]
    rewards = np.stack([rows.reward[0] for rows, _, _ in drawn])
    assert rewards.shape == (40, 20)
    assert set(rewards[:, :15].ravel()) == set(range(8))
    assert set(rewards[:, 15:].ravel()) <= set(range(100, 150))
    assert len(set(rewards[:, 15:].ravel())) > 45
    assert all(np.all(weight == 1) for _, weight, _ in drawn)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prefill_fraction": 0.5}, ["`prefill_fraction`", "data set"]),
        ({"prefill_fraction": 0.01, "prefill": "x.npz"}, ["0.01", "batch of 16 is 0"]),
    ],
)
def test_a_fraction_without_rows_of_both_kinds_is_refused(options, words):
    with pytest.raises(RlcliError) as error:
        uniform(1, 1, 1, batch_size=16, **options)
    assert mentions(str(error.value), *words)


def test_steps_of_frames_are_not_divided_within_episodes():
    options = {"capacity": 40, "batch_size": 8, "frames": {"stack": 2}}
    prioritized(1, 1, 1, prefill="x.npz", **options)
    prioritized(1, 1, 2, prefill="x.npz", prefill_fraction=0.5, **options)
    with pytest.raises(RlcliError, match="within episodes"):
        prioritized(1, 1, 2, prefill="x.npz", **options)
