"""MNISTBandit: name the digit that is shown."""

from __future__ import annotations

import functools
import gzip
import zlib
from pathlib import Path
from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Gt, Le
from PIL import Image

from rlcli.environments import drawing
from rlcli.environments.native.timesteps import make_timestep
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, Environment, Key, Structural, TimeStep

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
DIGITS = 10
_HINT = (
    f"put MNIST's training set, `{IMAGES}` and `{LABELS}`, as they are or with `.gz`, "
    "into a folder, and say `path: FOLDER`"
)


class MNISTBanditState(NamedTuple):
    """What is shown, and what was said."""

    image: Array  # int32: its number
    guess: Array  # int32: the digit that was named; −1 before


@register("environment", "bsuite/MNISTBandit")
def mnist_bandit(
    *, path: str = "", fraction: Annotated[Structural, Gt(0.0), Le(1.0)] = 1.0
) -> Environment:
    """Shows a handwritten digit: 1 for its name, −1 for any other.

    It terminates after one step. Observation: float32 `[28, 28]`: how dark the ink is,
    from 0 to 1; all 0 in the end. Actions: the digits. Logged: `regret`, what was
    missed of a return of 1. From bsuite (Osband et al., 2019,
    https://arxiv.org/abs/1908.03568), on the set of (LeCun et al., 1998,
    https://doi.org/10.1109/5.726791). bsuite reads pixels as signed bytes, so that
    there the darkest ink, above 127 of 255, is negative.

    Args:
        path: the folder with the training set.
        fraction: how much of it is shown, from its beginning.

    Raises:
        RlcliError: where there is no such set.
    """
    pixels, names = _read_dataset(path)
    count = int(fraction * len(names))
    if not count:
        raise RlcliError(
            f"a fraction of {fraction:g} of {len(names)} pictures is none",
            "choose a larger `fraction`",
        )
    size = pixels.shape[1:]
    images, labels = jnp.asarray(pixels[:count]), jnp.asarray(names[:count])

    def reset(key: Key) -> tuple[MNISTBanditState, Array]:
        image = jax.random.randint(key, (), 0, count)
        obs = jnp.take(images, image, axis=0, mode="clip").astype(jnp.float32) / 255
        return MNISTBanditState(image, jnp.int32(-1)), obs

    def step(
        state: MNISTBanditState, action: Array, noise: tuple[()]
    ) -> tuple[MNISTBanditState, TimeStep]:
        del noise  # only what is shown is random
        state = state._replace(guess=jnp.asarray(action, jnp.int32))
        right = state.guess == jnp.take(labels, state.image, mode="clip")
        reward = jnp.where(right, 1.0, -1.0)
        info = {"regret": 1.0 - reward}
        blank = jnp.zeros(size, jnp.float32)
        return state, make_timestep(blank, reward, jnp.bool_(True), info)

    def render(state: MNISTBanditState) -> np.ndarray:
        image = int(state.image)
        return _draw(pixels[image], int(names[image]), int(state.guess))

    return Environment(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(0.0, 1.0, size, np.float32),
        action=gymnasium.spaces.Discrete(DIGITS),
        render=render,
        draw=lambda key: (),
    )


# Once for all: a factory is called wherever a program is traced.
@functools.lru_cache(maxsize=2)
def _read_dataset(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Pictures, uint8 `[n, rows, columns]`, and their names, uint8 `[n]`."""
    if not path:
        raise RlcliError("`bsuite/MNISTBandit` has no pictures", _HINT)
    pictures = _read_idx(Path(path), IMAGES, 3)
    names = _read_idx(Path(path), LABELS, 1)
    if len(pictures) != len(names) or np.any(names >= DIGITS):
        raise RlcliError(
            f"`{path}`: {len(pictures)} pictures and {len(names)} names of digits do "
            "not go together",
            _HINT,
        )
    return pictures, names


def _read_idx(folder: Path, name: str, rank: int) -> np.ndarray:
    """An array of bytes in the IDX format: 0 0 8 rank, then sizes as 32-bit numbers."""
    files = [file for file in (folder / name, folder / f"{name}.gz") if file.is_file()]
    if not files:
        raise RlcliError(f"there is no `{name}` in `{folder}`", _HINT)
    try:
        content = files[0].read_bytes()
        if files[0].suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise RlcliError(f"`{files[0]}` cannot be read: {error}", _HINT) from error
    start = 4 * (1 + rank)
    sizes = np.frombuffer(content[4 : len(content[:start]) // 4 * 4], ">u4").tolist()
    data = np.frombuffer(content[start:], np.uint8)
    if content[:4] != bytes([0, 0, 8, rank]) or data.size != np.prod(sizes, dtype=int):
        raise RlcliError(f"`{files[0]}` is no array of bytes in the IDX format", _HINT)
    return data.reshape(sizes)


def _draw(image: np.ndarray, name: int, guess: int) -> np.ndarray:
    """The digit, and what was said: in green if that is its name; `[280, 440, 3]`."""
    canvas = drawing.Canvas(440, 280)
    label = "?" if guess < 0 else str(guess)
    fill = (
        drawing.GREY if guess < 0 else drawing.GREEN if guess == name else drawing.RED
    )
    canvas.text((360, 120), label, 110, fill)
    canvas.text((360, 210), f"it is {name}", 18, drawing.INK)
    frame = canvas.pixels().copy()
    ink = Image.fromarray(255 - image).resize((280, 280), Image.Resampling.NEAREST)
    frame[:, :280] = np.asarray(ink)[..., None]
    return frame
