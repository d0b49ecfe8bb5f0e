"""Numbers of episodes, frames and pixels, refused before anything is read or built."""

import math

import numpy as np
import pytest

import rlcli
from rlcli.errors import RlcliError
from rlcli.evaluation.targets import check_rendering, check_whole
from rlcli.loop.episode_records import check_evaluation_index


@pytest.mark.parametrize("function", [rlcli.eval, rlcli.render, rlcli.inspect])
@pytest.mark.parametrize("episodes", [-1, 0.5, "3", math.nan])
def test_a_number_of_episodes_is_whole_and_not_negative(function, episodes):
    with pytest.raises(RlcliError, match=r"`episodes` is .*, expected an int ≥ [01]$"):
        function("no run", episodes=episodes)


@pytest.mark.parametrize("function", [rlcli.eval, rlcli.render])
def test_there_is_no_result_of_no_episodes(function):
    with pytest.raises(RlcliError, match="expected an int ≥ 1"):
        function("no run", episodes=0)


@pytest.mark.parametrize("fps", [0, -1, 1e-9, 101, math.nan, math.inf, "50"])
def test_a_video_has_1_to_100_frames_per_second(fps):
    with pytest.raises(RlcliError, match="expected a number from 1 to 100"):
        check_rendering("CartPole-v1", fps=fps)


@pytest.mark.parametrize(
    "size", [(0, 9), (9, -1), (9.5, 9), (10_001, 9), (9,), (9, 9, 9), "9x9"]
)
def test_a_size_is_a_width_and_a_height(size):
    with pytest.raises(RlcliError, match="`size` is"):
        check_rendering("CartPole-v1", size=size)


def test_numbers_of_numpy_and_the_limits_themselves_are_taken():
    check_whole("episodes", np.int32(1))
    check_rendering("CartPole-v1", fps=np.float32(100), size=[1, 10_000])
    check_evaluation_index(np.int64(2**31 - 1))


@pytest.mark.parametrize("index", [-1, 2**31, 1.5, "0", None])
def test_a_seed_of_episodes_is_an_int32(index):
    with pytest.raises(RlcliError, match="expected a seed of episodes"):
        check_evaluation_index(index)
