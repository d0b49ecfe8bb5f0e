"""The locks of cores in the temporary folder, which all users share."""

import os

import pytest

from rlcli.studies.engines import ray_engine

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="cores are not pinned here"
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_engine.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path / f"rlcli-cores-{os.getuid()}"


def test_two_tasks_have_different_cores(place):
    cores = len(os.sched_getaffinity(0))
    with ray_engine._claim_cores(1) as first, ray_engine._claim_cores(1) as second:
        assert len(first) == 1
        assert len(second) == min(1, cores - 1) and first != second
    assert place.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_to_is_not_used(place):
    place.mkdir()
    place.chmod(0o777)
    with ray_engine._claim_cores(1) as cores:
        assert cores == []
    assert [*place.iterdir()] == []


def test_a_folder_of_another_user_is_not_used(place, monkeypatch):
    place.mkdir(mode=0o700)
    (place.parent / f"rlcli-cores-{os.getuid() + 1}").symlink_to(place)
    monkeypatch.setattr(os, "getuid", lambda: place.stat().st_uid + 1)
    with ray_engine._claim_cores(1) as cores:
        assert cores == []


def test_a_link_in_place_of_the_folder_or_of_a_lock_is_not_followed(place, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    place.symlink_to(victim)
    with ray_engine._claim_cores(1) as cores:
        assert cores == []
    place.unlink()
    place.mkdir(mode=0o700)
    for core in os.sched_getaffinity(0):
        (place / str(core)).symlink_to(victim / str(core))
    with ray_engine._claim_cores(1) as cores:
        assert cores == []
    assert [*victim.iterdir()] == []
