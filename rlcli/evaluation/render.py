"""Render: writes episodes as a GIF, an mp4 or a film strip, without a display."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

from rlcli import registry
from rlcli.assembly import build, out_of_memory
from rlcli.environments.drawing import INK, PAPER, Canvas
from rlcli.environments.rgb_image import to_rgb
from rlcli.errors import RlcliError, quote
from rlcli.evaluation import films, targets
from rlcli.evaluation.evaluate import snapshot_inputs
from rlcli.evaluation.make_evaluator import evaluation_parts, resize
from rlcli.loop.evaluator import EvaluationStep, Evaluator
from rlcli.loop.progress import Setup
from rlcli.recipe import Recipe, load_recipe
from rlcli.registry.paths import enter, resolves
from rlcli.runs import snapshots
from rlcli.runs.locate import locate_policy
from rlcli.types import START, ArrayTree, Inputs

_FPS = 50  # the default: CartPole's own rate
_OVERLAY_HEIGHT = 28  # pixels of the line of text below a frame
_MIN_OVERLAY_WIDTH = 320  # pixels that the text needs
_MAX_NUMBERS = 4  # of an action in the overlay


@resolves("path", new=("output",))
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
    trust: bool | None = None,
) -> Path:
    """Writes episodes as a video and returns its path.

    Args:
        path: a run's folder, a policy file or a checkpoint; or a recipe or the name of
            an environment, which is rendered with a random policy.
        best: uses the policy of the seed's best evaluation instead of the latest.
        output: the file; by default `<run>/render.gif`, or `render.gif` without a run.
            Its suffix selects the format: `.gif`, `.mp4` (requires the extra `mp4`), or
            `.png`, a strip of eight frames.
        episodes: the number of episodes.
        seed: random seed of the episodes.
        fps: frames per second, from 1 to 100; of a GIF at most 50.
        size: (width, height) in pixels, at most 10 000.
        overlay: writes step, return so far and action below each frame; below the last
            frame of an episode its length, its return, and its success or another
            number of `info`.
        trust: whether the file's recipe may import code from outside rlcli and
            plug-ins. By default that of your own runs may, see `rlcli.trust`.
    """
    targets.check_rendering(
        path, best=best, output=output, episodes=episodes, fps=fps, size=size
    )
    selection = _select_evaluator(path, best, episodes, trust)
    recipe, target, evaluator, acting, inputs = selection
    target = enter(target if output is None else output)
    with out_of_memory.limit_evaluation_memory(recipe, evaluator, acting):
        steps = evaluator.frames(acting, evaluation_index=seed, inputs=inputs)
        films.write_film(target, _compose_frames(steps, size, overlay), fps or _FPS)
    return target


def make_film_writer(
    recipe: Recipe, setup: Setup
) -> Callable[[ArrayTree, Path, int, Inputs], None]:
    """A function `(acting, file, index, inputs)` that films the first seed's episode.

    `acting` and `inputs` have a leading axis for the seeds. `index` is the index of the
    evaluation.
    """
    evaluator = _first_seed_evaluator(recipe, setup, 1)

    def write(acting: ArrayTree, target: Path, index: int, inputs: Inputs) -> None:
        first = jax.tree.map(lambda leaf: leaf[:1], (acting, inputs))
        steps = evaluator.frames(first[0], evaluation_index=index, inputs=first[1])
        films.write_film(target, _compose_frames(steps, None, False), _FPS)

    return write


def _select_evaluator(
    path: str | Path, best: bool, episodes: int, trust: bool | None
) -> tuple[Recipe, Path, Evaluator, Any, Inputs]:
    """The recipe, the default output file, the evaluator, acting state and time."""
    if (random := _random_recipe(path)) is not None:
        if best:
            raise RlcliError(
                "`--best` requires the folder of a run, not a recipe or an environment",
                "pass the folder of a run, or remove `--best`",
            )
        evaluator = _first_seed_evaluator(random, build(random, (0,)), episodes)
        return random, Path(targets.DEFAULT), evaluator, (), START
    run, file = locate_policy(path, best=best)
    snapshot = snapshots.load_snapshot(file, trust=trust)
    setup = build(snapshot.recipe, snapshot.seeds)
    acting = snapshots.restore_acting(snapshot, setup, file)
    first = jax.tree.map(lambda leaf: leaf[:1], acting)
    target = targets.default_output(run, file, targets.DEFAULT)
    evaluator = _first_seed_evaluator(snapshot.recipe, setup, episodes)
    return snapshot.recipe, target, evaluator, first, snapshot_inputs(snapshot, 0)


def _first_seed_evaluator(recipe: Recipe, setup: Setup, episodes: int) -> Evaluator:
    """An evaluator of the first seed in one environment that renders."""
    single = setup._replace(seeds=setup.seeds[:1])
    at = evaluation_parts(resize(recipe, 1), single, rendering=True)
    return Evaluator(at, single.seeds, episodes, recording=True)


def _random_recipe(path: str | Path) -> Recipe | None:
    """A recipe with a random policy, if the path is a recipe or an environment.

    Raises an error for the misspelled name of an environment.
    """
    if targets.is_recipe(path):
        return load_recipe(path, ["policy=random", "train.seeds=1"])
    if targets.is_policy_path(path):
        return None
    try:
        registry.find("environment", str(path))
    except RlcliError as error:
        is_path = os.path.exists(Path(*Path(path).parts[:1]))
        if is_path or not error.hint.startswith("did you mean"):
            return None
        message = f"there is no run, recipe or environment {quote(path)}"
        raise RlcliError(message, error.hint) from error
    section = {"environment": str(path), "policy": "random", "updater": "ppo"}
    return resize(load_recipe(section), 1)


def _compose_frames(
    steps: Iterable[tuple[EvaluationStep, np.ndarray]],
    size: tuple[int, int] | None,
    overlay: bool,
) -> Iterator[np.ndarray]:
    """Resizes the frames, and adds the overlay if requested."""
    for moment, drawn in steps:
        frame = to_rgb(drawn, "environment")  # also from a host environment of a user
        if size is None and not overlay:
            yield frame
            continue
        image = Image.fromarray(frame)
        if size is None and image.width < _MIN_OVERLAY_WIDTH:
            # By an integer, for crisp pixels.
            factor = -(-_MIN_OVERLAY_WIDTH // image.width)
            enlarged = (image.width * factor, image.height * factor)
            image = image.resize(enlarged, Image.Resampling.NEAREST)
        if size is not None:
            margin = _overlay_height(moment) if overlay else 0
            height = max(1, size[1] - margin)
            image = image.resize((size[0], height), Image.Resampling.LANCZOS)
        overlays = [_draw_overlay(moment, image.width)] if overlay else []
        yield np.concatenate([np.asarray(image), *overlays])


def _draw_overlay(moment: EvaluationStep, width: int) -> np.ndarray:
    """Draws step, return so far and action, `[H, width, 3]`.

    At the end of an episode a number that it logs of `info` takes the place of the
    action. Numbers that differ between episodes are in a line of their own, below.
    """
    canvas = Canvas(width, _overlay_height(moment), INK)
    words = [
        f"step {int(np.asarray(moment.length)[0, 0])}",
        f"return {float(np.asarray(moment.running_return)[0, 0]):.4g}",
    ]
    if moment.action is not None:  # there is none in a final state
        action = jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], moment.action)
        words.append(f"action {_format_action(action)}")
    # Success first: there is room for one.
    info = sorted(moment.info.items(), key=lambda item: "success" not in item[0])
    words += [f"{name} {value:.4g}" for name, value in info[:1]]
    for place, word in enumerate(words):
        # Fixed positions, so that the text does not move between frames.
        position = (_OVERLAY_HEIGHT / 3 + place * width * 0.3, _OVERLAY_HEIGHT / 2)
        canvas.text(position, word, 13, PAPER, anchor="lm")
    if numbers := moment.parameters.items():
        line = "   ".join(f"{name.removesuffix('_')} {v:.4g}" for name, v in numbers)
        position = (_OVERLAY_HEIGHT / 3, 1.4 * _OVERLAY_HEIGHT)
        canvas.text(position, line, 13, PAPER, anchor="lm")
    return canvas.pixels()


def _overlay_height(moment: EvaluationStep) -> int:
    return _OVERLAY_HEIGHT * (2 if moment.parameters else 1)


def _format_action(action: Any) -> str:
    """Formats the first numbers of an action."""
    numbers = [number for leaf in jax.tree.leaves(action) for number in np.ravel(leaf)]
    text = " ".join(f"{number:.3g}" for number in numbers[:_MAX_NUMBERS])
    return f"{text} …" if len(numbers) > _MAX_NUMBERS else text
