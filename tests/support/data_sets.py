"""Data sets of random episodes, for tests that need one."""

from pathlib import Path

import numpy as np

from rlcli.replays.datasets.dataset_arrays import DatasetArrays
from rlcli.replays.datasets.dataset_files import dump_dataset


def random_data(
    steps: int = 60, observation: int = 4, actions: int = 2, seed: int = 0
) -> DatasetArrays:
    """Episodes of 1 to 9 steps with Discrete actions; the last one is truncated."""
    rng = np.random.default_rng(seed)
    terminations = rng.random(steps) < 0.2
    truncations = ~terminations & (rng.random(steps) < 0.1)
    truncations[-1] = not terminations[-1]
    episodes = int(np.sum(terminations | truncations))
    return DatasetArrays(
        observations={"": rng.normal(size=(steps, observation)).astype("f4")},
        actions={"": rng.integers(0, actions, steps)},
        rewards=rng.normal(size=steps).astype("f4"),
        terminations=terminations,
        truncations=truncations,
        final_observations={"": rng.normal(size=(episodes, observation)).astype("f4")},
    )


def bandit_data(good: float, steps: int = 600, seed: int = 0) -> DatasetArrays:
    """Data of `probe-reward-depends-on-action`; a share `good` takes the best action.

    The reward of action 1 is 1, that of action 0 is −1.
    """
    action = (np.random.default_rng(seed).random(steps) < good).astype(int)
    return one_step_data(action, 2.0 * action - 1)


def one_step_data(action: np.ndarray, reward: np.ndarray) -> DatasetArrays:
    """Episodes of one step, with the observation 0."""
    zeros = np.zeros((len(action), 1), "f4")
    ends = np.ones(len(action), bool)
    return DatasetArrays(
        {"": zeros}, {"": action}, reward.astype("f4"), ends, ~ends, {"": zeros}
    )


def write_data(file: Path, data: DatasetArrays) -> Path:
    """Writes a data set."""
    file.write_bytes(dump_dataset(data))
    return file
