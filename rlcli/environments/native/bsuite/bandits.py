"""Bandits of bsuite: eleven arms with fixed rewards, and the classes of MNIST."""

import functools
import gzip
import math
import zlib
from pathlib import Path
from typing import Annotated

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Gt, Le

from rlcli.environments.native.bsuite import Seed
from rlcli.environments.native.core import native_core
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, Structural


@register("environment", "bsuite/SimpleBandit")
def simple_bandit(*, num_actions: Count = 11, mapping_seed: Seed = 0) -> Core:
    """Bandit with fixed rewards: each arm always pays the same amount, from 0 to 1.

    The rewards are evenly spaced, in an order that is fixed by `mapping_seed`. The
    episode terminates after one step.
    Observation: float32 `[1, 1]`, always 1. Actions: the arms. Logged: `regret`, 1
    minus the reward. From bsuite (Osband et al., 2019,
    https://arxiv.org/abs/1908.03568).

    Args:
        num_actions: the number of arms.
        mapping_seed: the seed of the order of the rewards, drawn as in bsuite.
    """
    order = np.random.RandomState(mapping_seed).choice(
        num_actions, size=num_actions, replace=False
    )
    rewards = jnp.asarray(np.linspace(0, 1, num_actions)[order], jnp.float32)

    def step(state: tuple[()], action: Array) -> tuple:
        reward = jnp.take(rewards, action, mode="clip")
        return state, reward, jnp.bool_(True), {"regret": 1.0 - reward}

    def observe(state: tuple[()]) -> Array:
        return jnp.ones((1, 1), jnp.float32)

    observation = gymnasium.spaces.Box(1.0, 1.0, (1, 1), np.float32)
    return native_core(lambda key: (), step, observe, observation, num_actions)


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
DIGITS = 10
_MOST_BYTES = 2**26  # that are read of a file; MNIST's images have 47 million
_HINT = (
    f"put MNIST's training set, `{IMAGES}` and `{LABELS}`, as they are or with `.gz`, "
    "into a folder, and set `path: FOLDER`"
)


@register("environment", "bsuite/MNISTBandit")
def mnist_bandit(
    *, path: str = "", fraction: Annotated[Structural, Gt(0.0), Le(1.0)] = 1.0
) -> Core:
    """Classifies a handwritten digit: reward 1 for the correct label, −1 for any other.

    The episode terminates after one step. Observation: float32 `[28, 28]`: the darkness
    of the ink, from 0 to 1; all 0 at the end. Actions: the digits. Logged: `regret`, 1
    minus the return. From bsuite (Osband et al., 2019,
    https://arxiv.org/abs/1908.03568), with the MNIST training set (LeCun et al., 1998,
    https://doi.org/10.1109/5.726791). bsuite reads pixels as signed bytes, so its
    darkest pixels, above 127 of 255, are negative.

    Args:
        path: the folder with the training set.
        fraction: the fraction of the training set to use, from its start.

    Raises:
        RlcliError: if the training set is missing or invalid.
    """
    pixels, labels = _read_dataset(path)
    count = int(fraction * len(labels))
    if not count:
        message = f"`fraction: {fraction:g}` of {len(labels)} images leaves none"
        raise RlcliError(message, "use a larger `fraction`")
    size = pixels.shape[1:]
    images, targets = jnp.asarray(pixels[:count]), jnp.asarray(labels[:count])

    def begin(key: Key) -> tuple[Array, Array]:
        image = jax.random.randint(key, (), 0, count)
        obs = jnp.take(images, image, axis=0, mode="clip").astype(jnp.float32) / 255
        return image, obs

    def step(image: Array, action: Array) -> tuple:
        is_correct = action == jnp.take(targets, image, mode="clip")
        reward = jnp.where(is_correct, 1.0, -1.0)
        info = {"regret": 1.0 - reward}
        return image, jnp.zeros(size, jnp.float32), reward, jnp.bool_(True), info

    observation = gymnasium.spaces.Box(0.0, 1.0, size, np.float32)
    return native_core(begin, step, None, observation, DIGITS)


# Cached: a factory is called each time a program is traced.
@functools.lru_cache(maxsize=2)
def _read_dataset(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads the images, uint8 `[n, rows, columns]`, and their labels, uint8 `[n]`."""
    if not path:
        raise RlcliError("`bsuite/MNISTBandit` needs the MNIST training set", _HINT)
    images = _read_idx(Path(path), IMAGES, 3)
    labels = _read_idx(Path(path), LABELS, 1)
    if len(images) != len(labels) or np.any(labels >= DIGITS):
        raise RlcliError(
            f"`{path}`: {len(images)} images and {len(labels)} labels do not match, or "
            f"a label is above {DIGITS - 1}",
            _HINT,
        )
    return images, labels


def _read_idx(folder: Path, name: str, rank: int) -> np.ndarray:
    """Reads an IDX file of bytes: 0 0 8 rank, 32-bit sizes, then the data."""
    files = [file for file in (folder / name, folder / f"{name}.gz") if file.is_file()]
    if not files:
        raise RlcliError(f"there is no `{name}` in `{folder}`", _HINT)
    try:
        is_packed = files[0].suffix == ".gz"
        with gzip.open(files[0]) if is_packed else files[0].open("rb") as file:
            content = file.read(_MOST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise RlcliError(f"`{files[0]}` cannot be read: {error}", _HINT) from error
    start = 4 * (1 + rank)
    sizes = np.frombuffer(content[4 : len(content[:start]) // 4 * 4], ">u4").tolist()
    data = np.frombuffer(content[start:], np.uint8)
    if content[:4] != bytes([0, 0, 8, rank]) or data.size != math.prod(sizes):
        raise RlcliError(f"`{files[0]}` is not a byte array in the IDX format", _HINT)
    return data.reshape(sizes)
