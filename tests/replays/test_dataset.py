"""The offline replay: windows of a data set."""

import jax
import numpy as np
from data_sets import random_data
from gymnasium import spaces

from rlcli.replays.dataset import dataset
from rlcli.types import External

BOX = spaces.Box(-10, 10, (4,), np.float32)
STEPS = 60


def sampled(window, key=0, batch_size=4_000):
    data = random_data(STEPS)._replace(rewards=np.arange(STEPS, dtype="f4"))
    rows = data.to_transitions(External(BOX, spaces.Discrete(2)), "x", "e")
    replay = dataset(window, 1, 1, path="x.npz", batch_size=batch_size)
    noise = replay.draw(jax.random.key(key))
    steps, weight, _ = replay.sample(rows, np.int32(0), noise)
    return rows, steps, weight


def test_windows_are_consecutive_steps_and_wrap_after_the_last_episode():
    rows, steps, weight = sampled(window=3)
    index = np.asarray(steps.reward).astype(int)  # the reward is the number of the step
    np.testing.assert_array_equal(index[1], (index[0] + 1) % STEPS)
    np.testing.assert_array_equal(index[2], (index[0] + 2) % STEPS)
    for found, all_rows in zip(
        jax.tree.leaves(steps), jax.tree.leaves(rows), strict=True
    ):
        np.testing.assert_array_equal(found, all_rows[index])
    assert rows.last[-1]
    assert np.all(weight == 1)


def test_every_step_is_equally_likely():
    _, steps, _ = sampled(window=1, batch_size=60_000)
    counts = np.bincount(np.asarray(steps.reward[0]).astype(int), minlength=STEPS)
    assert np.all(np.abs(counts - 1_000) < 5 * np.sqrt(1_000))
