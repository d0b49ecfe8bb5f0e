"""Arrays of data sets as rows of an environment's spaces."""

import gymnasium
import numpy as np
import pytest
from data_sets import random_data
from gymnasium import spaces
from wording import mentions

from rlcli.errors import RlcliError
from rlcli.types import External

BOX = spaces.Box(-10, 10, (4,), np.float32)
TWO = spaces.Discrete(2)


def rows_of(data, observation=BOX, action=TWO):
    external = External(observation, action)
    return data.to_transitions(external, "data set `x`", "environment `e`")


def test_rows_are_those_of_a_loop_over_the_episodes():
    data = random_data(200)
    data.check("x")
    rows, episode, first = rows_of(data), 0, True
    for step in range(200):
        last = data.terminations[step] or data.truncations[step]
        following = (
            data.final_observations[""][episode]
            if last
            else data.observations[""][step + 1]
        )
        np.testing.assert_array_equal(rows.next_obs[step], following)
        assert rows.discount[step] == (0 if data.terminations[step] else 1)
        assert (rows.first[step], rows.last[step]) == (first, last)
        episode, first = episode + last, last
    assert rows.action.dtype == np.int32
    assert episode == len(data.final_observations[""])


def test_members_of_tuples_and_dicts_are_found_by_their_paths():
    data = random_data()
    parts = {"b/0": data.observations[""], "a": data.actions[""]}
    final = {
        "b/0": data.final_observations[""],
        "a": data.actions[""][: len(data.returns)],
    }
    nested = spaces.Dict({"b": spaces.Tuple([BOX]), "a": TWO})
    data = data._replace(observations=parts, final_observations=final)
    rows = rows_of(data, observation=nested)
    np.testing.assert_array_equal(rows.obs["b"][0], parts["b/0"])
    np.testing.assert_array_equal(rows.obs["a"], parts["a"])


@pytest.mark.parametrize(
    ("observation", "action", "words"),
    [
        (spaces.Box(-1, 1, (3,)), TWO, "`observations` holds float32[4], expected Box"),
        (TWO, TWO, "`observations` holds float32[4], expected Discrete(2)"),
        (BOX, spaces.Discrete(2, start=1), "`actions` holds values outside"),
        (BOX, spaces.Box(-1, 1, (1,)), "`actions` holds int64[], expected Box(1,)"),
        (spaces.Dict({"a": BOX}), TWO, "`observations` is not a member of Dict(a: Box"),
    ],
)
def test_data_of_other_spaces_are_refused(
    observation: gymnasium.Space, action: gymnasium.Space, words
):
    with pytest.raises(RlcliError) as caught:
        rows_of(random_data(), observation, action)
    assert mentions(caught.value.message, "`x`", "not fit", "`e`")
    assert words in caught.value.message


def test_a_missing_member_is_named():
    data = random_data()
    data = data._replace(observations={"a": data.observations[""]})
    with pytest.raises(RlcliError, match="`observations/b` is missing"):
        rows_of(data, observation=spaces.Dict({"a": BOX, "b": TWO}))
