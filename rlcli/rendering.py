"""Rendering: episodes as an animated GIF, without a display."""

from __future__ import annotations

import dataclasses
import io
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

from rlcli import registry, runs, snapshots
from rlcli.build import build
from rlcli.errors import RlcliError
from rlcli.files import replace_file
from rlcli.playing import Player
from rlcli.progress import midnight
from rlcli.recipe import Recipe, load, shipped

_FPS = 50  # of an environment that says nothing: CartPole's own rate
_MOST = 3_000  # pictures: of some environments an episode never ends
_COLOURS = 128  # of a GIF's palette; drawings have few


def render(
    path: str | Path,
    *,
    best: bool = False,
    output: str | Path | None = None,
    episodes: int = 1,
    seed: int = 0,
    fps: float | None = None,
    size: tuple[int, int] | None = None,
    trust: bool = False,
) -> Path:
    """Writes episodes as a GIF and returns its path.

    Args:
        path: a run's folder, a policy file or a checkpoint; or a recipe or the name of
            an environment, which a random policy plays.
        best: plays the best policy by evaluation instead of the latest.
        output: the file; `<run>/render.gif`, or `render.gif` without a run.
        seed: of the episodes.
        fps: pictures per second, at most 50.
        size: (width, height) in pixels.
        trust: imports what the file's recipe names beyond rlcli and its plug-ins.
    """
    target, player, acting = _player(path, best, episodes, trust)
    pictures = (picture for _, picture in player.watch(acting, occasion=seed))
    target = Path(output) if output is not None else target
    _write(target, pictures, fps or _FPS, size)
    return target


def _player(
    path: str | Path, best: bool, episodes: int, trust: bool
) -> tuple[Path, Player, Any]:
    """Where the GIF goes, who plays, and with what."""
    if (random := _random(path)) is not None:
        if best:
            raise RlcliError(
                "`--best` chooses from a run, and a random policy has none",
                "name the folder of a run, or leave out `--best`",
            )
        return Path("render.gif"), *_prepared(random, (0,), episodes), ()
    run, file = runs.locate(path, best=best)
    snapshot = snapshots.load_snapshot(file, trust=trust)
    setup = build(snapshot.recipe, snapshot.seeds)
    acting = snapshots.acting_of(snapshot, setup, file)
    first = jax.tree.map(lambda leaf: leaf[:1], acting)
    target = (run.folder if run else file.parent) / "render.gif"
    return target, *_prepared(snapshot.recipe, snapshot.seeds[:1], episodes), first


def _prepared(recipe: Recipe, seeds: tuple[int, ...], episodes: int) -> tuple[Player]:
    one = dataclasses.replace(recipe, num_envs=1)
    environment, agent = build(one, seeds, rendering=True).parts(midnight())
    return (Player(environment, agent.policy, seeds, episodes),)


def _random(path: str | Path) -> Recipe | None:
    """A recipe whose policy is random, if a recipe or an environment is named."""
    given = Path(path)
    if given.is_dir() or given.name.endswith(runs.SUFFIX):
        return None
    if given.suffix in (".yaml", ".yml") or str(path) in shipped():
        recipe = load(path, ["policy=random", "train.seeds=1"])
        return recipe
    try:
        registry.find("environment", str(path))
    except RlcliError:
        return None
    return load({"environment": str(path), "policy": "random", "updater": "ppo"})


def _write(
    target: Path,
    pictures: Iterable[np.ndarray],
    fps: float,
    size: tuple[int, int] | None,
) -> None:
    """An endlessly repeated GIF; a GIF counts time in hundredths of a second."""
    frames = (_frame(picture, size) for picture in pictures)
    first = next(frames)
    hundredths = max(2, round(100 / fps))
    # One palette for all: flickers less, and takes a fraction of the space.
    palette = first.quantize(_COLOURS)
    indexed = [
        each.quantize(palette=palette, dither=Image.Dither.NONE)
        for each in itertools.chain([first], itertools.islice(frames, _MOST - 1))
    ]
    if next(frames, None) is not None:
        print(f"warning: the GIF ends after {_MOST:,} pictures", file=sys.stderr)
    data = io.BytesIO()
    indexed[0].save(
        data,
        format="GIF",
        save_all=True,
        append_images=indexed[1:],
        duration=10 * hundredths,
        loop=0,
        optimize=False,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, data.getvalue())


def _frame(picture: np.ndarray, size: tuple[int, int] | None) -> Image.Image:
    image = Image.fromarray(np.asarray(picture, np.uint8))
    return image if size is None else image.resize(size, Image.Resampling.LANCZOS)
