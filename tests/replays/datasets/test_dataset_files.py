"""Files of data sets: what is written is read back, and damage is an error."""

import contextlib
import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
from data_sets import random_data, write_data

from rlcli.errors import RlcliError
from rlcli.replays.datasets import dataset_files
from rlcli.replays.datasets.dataset_files import dump_dataset, load_dataset
from rlcli.xla.machine import Available

# Metadata of 20 MiB, which would become a hundred.
FILLS_MEMORY = '{"format_version": 1, "a": [' + "[]," * 2**21 + "[]]}"


def rewritten(tmp_path, remove=(), **arrays):
    """A file whose arrays differ from those of a valid data set."""
    with np.load(write_data(tmp_path / "valid.npz", random_data())) as file:
        content = {name: file[name] for name in file.files if name not in remove}
    path = tmp_path / "data.npz"
    np.savez(path, **{**content, **arrays})
    return path


def refusal(path):
    with pytest.raises(RlcliError) as caught:
        load_dataset(path)
    return caught.value.message


def test_a_data_set_is_read_as_it_was_written(tmp_path):
    data = random_data()._replace(metadata={"environment": "Mine-v0"})
    found = load_dataset(write_data(tmp_path / "data.npz", data))
    for name, array in data.by_name().items():
        np.testing.assert_array_equal(found.by_name()[name], array)
        assert found.by_name()[name].dtype == array.dtype
    assert found.metadata["environment"] == "Mine-v0"
    assert found.metadata["format_version"] == 1


def test_members_of_a_dict_keep_their_names(tmp_path):
    data, rng = random_data(), np.random.default_rng(0)
    members = {"place": rng.random((60, 2)), "a\\/b": rng.random(60)}
    final = {key: value[: len(data.returns)] for key, value in members.items()}
    data = data._replace(observations=members, final_observations=final)
    found = load_dataset(write_data(tmp_path / "data.npz", data))
    assert found.observations.keys() == members.keys()


def test_equal_data_sets_give_equal_bytes():
    assert (
        dump_dataset(random_data())
        == dump_dataset(random_data())
        != dump_dataset(random_data(seed=1))
    )


def test_returns_are_sums_over_episodes():
    data = random_data()
    ends = np.flatnonzero(data.ends) + 1
    parts = np.split(data.rewards.astype("f8"), ends)[:-1]
    np.testing.assert_allclose(data.returns, [part.sum() for part in parts], atol=1e-12)


@pytest.mark.parametrize("name", ["observations", "rewards", "final_observations"])
def test_a_missing_array_is_named(tmp_path, name):
    assert f"no array `{name}`" in refusal(rewritten(tmp_path, remove=[name]))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"rewards": np.zeros((60, 1), "f4")}, "`rewards` has shape [60, 1]"),
        ({"rewards": np.zeros(0, "f4")}, "`rewards` has shape [0]"),
        ({"terminations": np.zeros(60)}, "`terminations` is float64[60]"),
        ({"actions": np.zeros(59, int)}, "`actions` is int64[59], expected 60 rows"),
        ({"observations": np.full((60, 4), "x")}, "expected numbers"),
        ({"observations": np.full((60, 4), np.nan)}, "not finite in row 0"),
        ({"rewards": np.r_[np.zeros(59), np.inf]}, "`rewards` is not finite in row 59"),
        ({"rewards": np.r_[1e300, np.zeros(59)]}, "not finite in row 0, as float32"),
        ({"final_observations": np.zeros((1, 4))}, "`final_observations` is float64"),
        (
            {"truncations": np.zeros(60, bool), "terminations": np.zeros(60, bool)},
            "its last step ends no episode",
        ),
        ({"metadata": np.array("[1]")}, "is not a JSON object"),
        ({"metadata": np.array(FILLS_MEMORY)}, "is not a JSON object"),
        ({"metadata": np.array(json.dumps({"format_version": 2}))}, "version 2"),
    ],
)
def test_arrays_that_do_not_match_are_refused(tmp_path, arrays, words):
    assert words in refusal(rewritten(tmp_path, **arrays))


class Bomb:
    """Would leave a file behind if it were unpickled."""

    def __reduce__(self):
        return open, ("exploded", "w")


def test_pickled_objects_are_refused_and_not_run(folder):
    objects = np.array([Bomb()] * 60, object)
    assert "cannot be read" in refusal(rewritten(folder, actions=objects))
    assert not (folder / "exploded").exists()


@pytest.mark.parametrize("size", [0, 10, 2_000, -30])
def test_a_truncated_file_is_refused(tmp_path, size):
    path = tmp_path / "data.npz"
    path.write_bytes(dump_dataset(random_data())[:size])
    assert "cannot be read" in refusal(path)


def test_a_damaged_array_is_refused(tmp_path):
    content = bytearray(dump_dataset(random_data()))
    content[300] ^= 0xFF
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    assert "cannot be read" in refusal(path)


def test_a_missing_file_and_a_folder_are_no_data_sets(tmp_path):
    assert "there is no data set" in refusal(tmp_path / "missing.npz")
    assert "there is no data set" in refusal(tmp_path)


def with_member(tmp_path, name, content, compression=zipfile.ZIP_DEFLATED):
    """A file with one member of these bytes in place of an array."""
    path = rewritten(tmp_path, remove=[name])
    with zipfile.ZipFile(path, "a", compression) as archive:
        archive.writestr(f"{name}.npy", content)
    return path


def header(shape, descr="<f4"):
    buffer = io.BytesIO()
    fields = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()


@pytest.mark.parametrize("shape", [(10**13,), (60, 10**18), (-1,)])
def test_no_memory_is_allocated_for_an_array_that_is_not_there(tmp_path, shape):
    path = with_member(tmp_path, "rewards", header(shape) + bytes(240))
    tracemalloc.start()
    message = refusal(path)
    assert "`rewards.npy` has an invalid header" in message
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


@pytest.mark.parametrize("extra", [-1, 1])
def test_an_array_of_another_size_than_its_header_says_is_refused(tmp_path, extra):
    path = with_member(tmp_path, "rewards", header((60,)) + bytes(240 + extra))
    assert "another size than its header says" in refusal(path)


def test_a_file_that_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch):
    available = Available(1_000, "physical memory")
    monkeypatch.setattr(dataset_files, "available_memory", lambda: available)
    assert "of memory, but only 1000 B are available" in refusal(rewritten(tmp_path))


def test_a_file_of_very_many_arrays_is_refused_before_they_are_read(
    tmp_path, monkeypatch
):
    """Each has a few bytes in the file, and takes a thousand times as much."""
    monkeypatch.setattr(dataset_files, "_MOST_ARRAYS", 6)
    assert "it has 7 arrays" in refusal(rewritten(tmp_path))


def test_methods_of_compression_without_a_limit_are_refused(tmp_path):
    content = header((60,)) + bytes(240)
    path = with_member(tmp_path, "rewards", content, zipfile.ZIP_BZIP2)
    assert "compressed by an unsupported method" in refusal(path)


def test_a_pipe_is_no_data_set(tmp_path):
    path = tmp_path / "pipe.npz"
    os.mkfifo(path)
    assert "there is no data set" in refusal(path)
    with pytest.raises(RlcliError, match="there is no data set"):
        dataset_files.file_digest(path)


@pytest.mark.slow
def test_damage_anywhere_is_one_error_or_harmless(tmp_path):
    content, rng = dump_dataset(random_data()), np.random.default_rng(0)
    path = tmp_path / "data.npz"
    for place in rng.integers(0, len(content), 300):
        damaged = bytearray(content)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with contextlib.suppress(RlcliError):
            load_dataset(path)


def test_other_bytes_of_a_bool_mean_true(tmp_path):
    ends = bytes([0] * 59 + [7])
    final = np.zeros((1, 4), "f4")
    path = rewritten(
        tmp_path,
        ["terminations"],
        final_observations=final,
        truncations=np.zeros(60, bool),
    )
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("terminations.npy", header((60,), "|b1") + ends)
    assert np.sum(load_dataset(path).terminations) == 1


def test_metadata_may_be_missing(tmp_path):
    assert load_dataset(rewritten(tmp_path, remove=["metadata"])).metadata == {}
