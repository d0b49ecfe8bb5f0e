"""TensorBoard: event files in the folder of the run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from rlcli import registry
from rlcli.registry.libraries import import_library, require_extra
from rlcli.trackers import Record, TrackedRun, Tracker, flatten_recipe

FOLDER = "tensorboard"
_METRICS = ("train/average_return", "evaluation/return")  # in the tab of the recipes


@registry.register("tracker", is_local=True)
def tensorboard() -> Tracker:
    """TensorBoard: writes event files into the run folder (needs the extra).

    They are in `<run>/tensorboard`, and for several seeds in its folders `mean` and
    `seed_0`, `seed_1`, …, whose curves TensorBoard draws into one chart. Show them with
    `tensorboard --logdir runs`.
    """
    require_extra("tensorboard", "tracker `tensorboard`")
    return Tracker(_start, _log, _finish)


class _Writers(dict[int | None, Any]):
    """A writer for each seed, and one for all seeds together, made when first used."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run

    def __missing__(self, seed: int | None) -> Any:
        tensorboard = import_library("tensorboardX", "tensorboard")
        folder = self._run.folder / FOLDER
        if len(self._run.seeds) > 1:
            folder /= "mean" if seed is None else f"seed_{seed}"
        # Otherwise a resume in the same second would replace the file.
        suffix = f".{self._run.step}"
        self[seed] = tensorboard.SummaryWriter(str(folder), filename_suffix=suffix)
        return self[seed]


def _start(run: TrackedRun) -> _Writers:
    writers = _Writers(run)
    if run.step == 0:
        summary = import_library("tensorboardX.summary", "tensorboard")
        options, metrics = flatten_recipe(run.recipe), dict.fromkeys(_METRICS, 0.0)
        for item in summary.hparams(options, metrics):
            writers[None].file_writer.add_summary(item)
    return writers


def _log(writers: _Writers, records: Sequence[Record]) -> None:
    for step, seed, time, scalars, histograms, films in records:
        writer = writers[seed]
        for name, value in scalars.items():
            writer.add_scalar(name, value, step, walltime=time)
        for name, values in histograms.items():
            writer.add_histogram(name, values, step, walltime=time)
        for name, film in films.items():
            writer.file_writer.add_summary(_film_summary(name, film), step, time)
    for writer in writers.values():
        writer.flush()


def _film_summary(name: str, film: Path) -> Any:
    """A GIF as an image, which TensorBoard shows moving."""
    protocol = import_library("tensorboardX.proto.summary_pb2", "tensorboard")
    with Image.open(film) as image:
        width, height = image.size
    content = protocol.Summary.Image(
        height=height, width=width, colorspace=3, encoded_image_string=film.read_bytes()
    )
    return protocol.Summary(value=[protocol.Summary.Value(tag=name, image=content)])


def _finish(writers: _Writers, status: str) -> None:
    for writer in writers.values():
        writer.close()
