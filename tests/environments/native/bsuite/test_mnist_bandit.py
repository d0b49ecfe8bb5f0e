"""MNISTBandit, beside bsuite's own, on synthetic digits."""

import gzip
import tracemalloc

import jax
import numpy as np
import pytest
from bsuite.environments import mnist as original
from bsuite.utils import datasets
from scipy import stats

from rlcli.environments.native.bsuite import bandits as native
from rlcli.environments.native.bsuite.bandits import mnist_bandit
from rlcli.errors import RlcliError

NUMBER = 50


def idx(array):
    """An IDX file of an array of bytes."""
    sizes = b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with small versions of MNIST's four files."""
    path, rng = tmp_path_factory.mktemp("mnist"), np.random.default_rng(0)
    for part in ("train", "t10k"):
        images = rng.integers(256, size=(NUMBER, 28, 28), dtype=np.uint8)
        labels = rng.integers(10, size=NUMBER, dtype=np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            target = path / f"{part}-{name}-ubyte.gz"
            target.write_bytes(gzip.compress(idx(array)))
    return path


@pytest.fixture(scope="module")
def bsuite_env(folder):
    with pytest.MonkeyPatch.context() as patch:
        loaded = datasets.load_mnist(
            str(folder)
        )  # downloads nothing, since all files exist
        patch.setattr(datasets, "load_mnist", lambda: loaded)
        return original.MNISTBandit(seed=0)


def test_a_step_matches_bsuite_for_every_image_and_digit(
    pair_class, fits, folder, bsuite_env
):
    core, pulled = mnist_bandit(path=str(folder)), []
    fits(core, bsuite_env)
    pair = pair_class(core, lambda env: pulled[-1])
    for image in range(NUMBER):
        for digit in range(10):
            bsuite_env._correct_label = bsuite_env._labels[image]
            pulled.append(np.int32(image))
            pair.act(bsuite_env, digit)
    *_, (obs, reward, last, gained) = pair.check()
    assert np.sum(reward == 1) == NUMBER
    assert np.all(last)
    assert not np.any(obs)
    assert np.sum(gained["regret"] == 2) == 9 * NUMBER


def test_every_image_is_equally_likely(pair_class, folder):
    pair = pair_class(mnist_bandit(path=str(folder)), None)
    state, _ = pair.resets(0, 5000)
    counts = np.bincount(state, minlength=NUMBER)
    assert stats.chisquare(counts).pvalue > 0.001
    few, _ = pair_class(mnist_bandit(path=str(folder), fraction=0.1), None).resets(
        0, 500
    )
    assert set(few.tolist()) == set(range(5))


def test_the_darkest_pixels_are_not_negative(pair_class, folder, bsuite_env):
    # bsuite and gymnax read pixels as signed bytes.
    state, obs = pair_class(mnist_bandit(path=str(folder)), None).resets(1, 100)
    pixels = bsuite_env._images[state].astype(np.float32)
    assert pixels.min() < 0
    np.testing.assert_allclose(obs, pixels % 256 / 255, rtol=1e-6)


def test_uncompressed_files_are_supported(folder, tmp_path):
    for name in (native.IMAGES, native.LABELS):
        packed = (folder / f"{name}.gz").read_bytes()
        (tmp_path / name).write_bytes(gzip.decompress(packed))
    key = jax.random.key(3)
    plain, packed = (mnist_bandit(path=str(each)) for each in (tmp_path, folder))
    np.testing.assert_array_equal(plain.reset(key)[1], packed.reset(key)[1])


def test_missing_and_invalid_files_are_errors(folder, tmp_path):
    def refused(**options):
        with pytest.raises(RlcliError) as error:
            mnist_bandit(**options)
        assert error.value.hint
        return error.value.message

    assert "needs the MNIST training set" in refused()
    assert refused(path=str(tmp_path)).startswith(f"there is no `{native.IMAGES}` in")
    images, labels = (
        (folder / f"{n}.gz").read_bytes() for n in (native.IMAGES, native.LABELS)
    )

    def written(name, content):
        place = tmp_path / name
        place.mkdir()
        (place / f"{native.IMAGES}.gz").write_bytes(content)
        (place / f"{native.LABELS}.gz").write_bytes(labels)
        return {"path": str(place)}

    assert "cannot be read" in refused(**written("cut", images[:-20]))
    assert "cannot be read" in refused(**written("plain", b"no gzip"))
    for name, content in (
        ("empty", b""),
        ("half", bytes([0, 0, 8, 3, 0, 0, 0, 1])),
        ("wrapped", bytes([0, 0, 8, 3, 0, 64, 0, 0, 0, 32, 0, 0, 0, 32, 0, 0])),
        ("labels", gzip.decompress(labels)),
        ("short", gzip.decompress(images)[:-1]),
    ):
        packed = gzip.compress(content)
        assert "IDX format" in refused(**written(name, packed))
    fewer = gzip.compress(idx(np.zeros((3, 28, 28), np.uint8)))
    assert "do not match" in refused(**written("fewer", fewer))
    assert "leaves none" in refused(path=str(folder), fraction=0.001)


@pytest.mark.slow
def test_of_a_file_that_unpacks_without_end_a_part_is_read(tmp_path):
    size = 2**28
    with gzip.open(tmp_path / f"{native.IMAGES}.gz", "wb", 1) as file:
        file.write(b"\0\0\x08\x03" + size.to_bytes(4, "big") + b"\0\0\0\1" * 2)
        for _ in range(size // 2**24):
            file.write(bytes(2**24))
    tracemalloc.start()
    try:
        with pytest.raises(RlcliError, match="is not a byte array in the IDX format"):
            native.mnist_bandit(path=str(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()
