"""TensorBoard: event files, as TensorBoard itself reads them."""

import pytest
from PIL import Image
from tracked import logged, record, tracked_run

from rlcli.trackers.tensorboard import tensorboard

pytest.importorskip("tensorboardX")
reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
# Those of TensorBoard and tensorboardX, of which both import old names.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def events(folder):
    accumulator = reading.EventAccumulator(str(folder), {"scalars": 0, "images": 0})
    accumulator.Reload()
    return accumulator


def scalars(folder, tag="train/return"):
    return [(event.step, event.value) for event in events(folder).Scalars(tag)]


def test_several_seeds_have_a_folder_each_beside_their_mean(tmp_path):
    run = tracked_run(tmp_path / "run")
    rows = [record(10, 2.5), record(10, 2.0, seed=0), record(10, 3.0, seed=1)]
    logged(tensorboard(), run, rows, [record(20, 4.0)])
    folder = run.folder / "tensorboard"
    assert scalars(folder / "mean") == [(10, 2.5), (20, 4.0)]
    assert scalars(folder / "seed_0") == [(10, 2.0)]
    assert scalars(folder / "seed_1") == [(10, 3.0)]
    (event, _) = events(folder / "mean").Scalars("train/return")
    assert event.wall_time == 1.8e9 + 10


def test_a_single_seed_has_histograms_films_and_the_recipe_in_one_folder(tmp_path):
    run = tracked_run(tmp_path / "run", seeds=(7,))
    film = tmp_path / "film.gif"
    Image.new("RGB", (6, 4)).save(film)
    films = {"evaluation/film": film}
    logged(tensorboard(), run, [record(10, 1.0, histograms=["h"], films=films)])
    found = events(run.folder / "tensorboard")
    (histogram,) = found.Histograms("h")
    assert histogram.histogram_value.num == 4 and histogram.histogram_value.sum == 6
    (image,) = found.Images("evaluation/film")
    assert (image.width, image.height) == (6, 4)
    assert image.encoded_image_string == film.read_bytes()
    plugin = found.summary_metadata["_hparams_/session_start_info"].plugin_data
    assert plugin.plugin_name == "hparams" and b"tracer.n" in plugin.content


def test_a_resumed_run_continues_its_curves(tmp_path):
    run = tracked_run(tmp_path / "run", seeds=(0,))
    logged(tensorboard(), run, [record(10, 1.0)])
    logged(tensorboard(), run._replace(step=10), [record(20, 2.0)])
    assert scalars(run.folder / "tensorboard") == [(10, 1.0), (20, 2.0)]
