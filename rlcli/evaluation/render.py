"""Rendering: episodes as a GIF, an mp4 or a film strip, without a display."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

from rlcli import registry
from rlcli.assembly import build, environment_of, out_of_memory
from rlcli.environments.drawing import INK, PAPER, Canvas
from rlcli.errors import RlcliError
from rlcli.evaluation import films
from rlcli.loop.episodes import Moment, Player
from rlcli.loop.progress import Setup, midnight
from rlcli.recipe import Recipe, load, shipped
from rlcli.runs import run_folder, snapshots

_FPS = 50  # of an environment that says nothing: CartPole's own rate
_LINE = 28  # pixels: how high the line of text below a picture is
_READABLE = 320  # pixels that such a line needs
_NUMBERS = 4  # of an action that are shown


def render(
    path: str | Path,
    *,
    best: bool = False,
    output: str | Path | None = None,
    episodes: int = 1,
    seed: int = 0,
    fps: float | None = None,
    size: tuple[int, int] | None = None,
    overlay: bool = False,
    trust: bool = False,
) -> Path:
    """Writes episodes as a film and returns its path.

    Args:
        path: a run's folder, a policy file or a checkpoint; or a recipe or the name of
            an environment, which a random policy plays.
        best: plays the best policy by evaluation instead of the latest.
        output: the file; `<run>/render.gif`, or `render.gif` without a run. Its suffix
            says what it is: `.gif`, `.mp4` (the extra `mp4`), or `.png`, a strip of
            eight pictures.
        seed: of the episodes.
        fps: pictures per second, of a GIF at most 50.
        size: (width, height) in pixels.
        overlay: writes step, return so far and action below each picture; below the
            last one of an episode its length and its return.
        trust: imports what the file's recipe names beyond rlcli and its plug-ins.
    """
    if output is not None:
        films.check(Path(output))
    recipe, target, player, acting = _player(path, best, episodes, trust)
    target = Path(output) if output is not None else target
    with out_of_memory.play_within(recipe, player, acting):
        watched = player.watch(acting, occasion=seed)
        films.write(target, _framed(watched, size, overlay), fps or _FPS)
    return target


def _player(
    path: str | Path, best: bool, episodes: int, trust: bool
) -> tuple[Recipe, Path, Player, Any]:
    """The recipe, where the film goes, who plays, and with what."""
    if (random := _random(path)) is not None:
        if best:
            raise RlcliError(
                "`--best` chooses from a run, and a random policy has none",
                "name the folder of a run, or leave out `--best`",
            )
        player = _prepared(random, build(random, (0,)), episodes)
        return random, Path("render.gif"), player, ()
    run, file = run_folder.locate(path, best=best)
    snapshot = snapshots.load_snapshot(file, trust=trust)
    setup = build(snapshot.recipe, snapshot.seeds)
    acting = snapshots.acting_of(snapshot, setup, file)
    first = jax.tree.map(lambda leaf: leaf[:1], acting)
    target = (run.folder if run else file.parent) / "render.gif"
    player = _prepared(snapshot.recipe, setup, episodes)
    return snapshot.recipe, target, player, first


def _prepared(recipe: Recipe, setup: Setup, episodes: int) -> Player:
    """Plays the first seed in one environment, which draws."""
    one = dataclasses.replace(recipe, num_envs=1)
    environment = environment_of(one, 1, midnight(), rendering=True)
    # Of the recipe as it is: evolution has a member for each of its environments.
    _, agent = setup.parts(midnight())
    return Player(environment, agent.policy, setup.seeds[:1], episodes)


def _random(path: str | Path) -> Recipe | None:
    """A recipe whose policy is random, if a recipe or an environment is named."""
    given = Path(path)
    if given.is_dir() or given.name.endswith(run_folder.SUFFIX):
        return None
    if given.suffix in (".yaml", ".yml") or str(path) in shipped():
        recipe = load(path, ["policy=random", "train.seeds=1"])
        return recipe
    try:
        registry.find("environment", str(path))
    except RlcliError:
        return None
    return load({"environment": str(path), "policy": "random", "updater": "ppo"})


def _framed(
    pictures: Iterable[tuple[Moment, np.ndarray]],
    size: tuple[int, int] | None,
    overlay: bool,
) -> Iterator[np.ndarray]:
    """The pictures in the size asked for, with a line of text below where wanted."""
    for moment, picture in pictures:
        image = Image.fromarray(np.asarray(picture, np.uint8))
        if overlay and size is None and image.width < _READABLE:
            factor = -(-_READABLE // image.width)  # crisp pixels, and room for words
            image = image.resize(
                (image.width * factor, image.height * factor), Image.Resampling.NEAREST
            )
        if size is not None:
            below = _LINE if overlay else 0
            height = max(1, size[1] - below)
            image = image.resize((size[0], height), Image.Resampling.LANCZOS)
        frame = np.asarray(image)
        yield np.concatenate([frame, _line(moment, image.width)]) if overlay else frame


def _line(moment: Moment, width: int) -> np.ndarray:
    """Step, return so far and action, `[28, width, 3]`; of the first environment."""
    canvas = Canvas(width, _LINE, INK)
    words = [
        f"step {int(np.asarray(moment.length)[0, 0])}",
        f"return {float(np.asarray(moment.running)[0, 0]):.4g}",
    ]
    if moment.action is not None:  # there is none in a final state
        action = jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], moment.action)
        words.append(f"action {_said(action)}")
    for place, each in enumerate(words):
        # Each has a place of its own, so that nothing jumps.
        at = (_LINE / 3 + place * width * 0.3, _LINE / 2)
        canvas.text(at, each, 13, PAPER, anchor="lm")
    return canvas.pixels()


def _said(action: Any) -> str:
    """An action in a few letters."""
    numbers = [each for leaf in jax.tree.leaves(action) for each in np.ravel(leaf)]
    some = " ".join(f"{each:.3g}" for each in numbers[:_NUMBERS])
    return f"{some} …" if len(numbers) > _NUMBERS else some
