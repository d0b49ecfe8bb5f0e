"""Minari's data sets, as its `load_dataset` gives them."""

import sys
from types import ModuleType, SimpleNamespace

import gymnasium
import numpy as np
import pytest
from wording import mentions

from rlcli.errors import RlcliError
from rlcli.replays.datasets.recipe_dataset import Dataset


@pytest.fixture
def episodes(monkeypatch):
    """The episodes of the only data set, `mine/test-v0`."""
    rng = np.random.default_rng(0)
    result = [
        SimpleNamespace(
            observations={
                "place": rng.random((length + 1, 2)),
                "on": np.ones(length + 1),
            },
            actions=rng.random((length, 1)),
            rewards=rng.random(length),
            terminations=np.zeros(length, bool),
            truncations=np.zeros(length, bool),
        )
        for length in (3, 2)
    ]
    result[0].terminations[-1] = True

    def load_dataset(id):
        if id != "mine/test-v0":
            raise FileNotFoundError(f"Dataset {id} not found")
        return SimpleNamespace(iterate_episodes=lambda: iter(result))

    module = ModuleType("minari")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "minari", module)
    return result


def test_episodes_become_the_same_arrays(episodes):
    data = Dataset.parse("mine/test-v0", is_minari=True).arrays()
    place = [each.observations["place"] for each in episodes]
    np.testing.assert_array_equal(
        data.observations["place"], np.concatenate([place[0][:-1], place[1][:-1]])
    )
    np.testing.assert_array_equal(
        data.final_observations["place"], np.stack([place[0][-1], place[1][-1]])
    )
    assert data.terminations.tolist() == [False, False, True, False, False]
    # Neither terminated nor truncated: the recording ended here.
    assert data.truncations.tolist() == [False] * 4 + [True]


def test_the_hash_is_that_of_the_arrays(episodes):
    source = Dataset.parse("mine/test-v0", is_minari=True)
    before = source.digest()
    assert before == source.digest()
    episodes[0].rewards[0] += 1
    assert source.digest() != before


@pytest.mark.parametrize("text", [["go left"] * 4, "go left"])
def test_text_in_observations_is_refused(episodes, text):
    for each in episodes:
        each.observations["mission"] = text
    with pytest.raises(RlcliError) as caught:
        Dataset.parse("mine/test-v0", is_minari=True).arrays()
    assert "numbers" in caught.value.message


def test_a_data_set_without_steps_is_refused(episodes):
    del episodes[1]
    for name in ("actions", "rewards", "terminations", "truncations"):
        setattr(episodes[0], name, getattr(episodes[0], name)[:0])
    with pytest.raises(RlcliError):
        Dataset.parse("mine/test-v0", is_minari=True).arrays()


def test_a_missing_data_set_says_how_to_get_it(episodes):
    with pytest.raises(RlcliError) as caught:
        Dataset.parse("other", is_minari=True).arrays()
    assert mentions(caught.value.hint, "`minari download other`")


def test_without_minari_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(RlcliError) as caught:
        Dataset.parse("mine/test-v0", is_minari=True).arrays()
    assert caught.value.hint.startswith("pip install")


@pytest.mark.filterwarnings("ignore")
def test_a_data_set_that_minari_has_recorded(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gymnasium.make("CartPole-v1"))
    lengths = []
    for seed in range(3):
        env.reset(seed=seed)
        end = False
        lengths.append(0)
        while not end:
            end = env.step(1)[2]
            lengths[-1] += 1
    env.create_dataset("mine/test-v0")  # warns about missing metadata
    data = Dataset.parse("mine/test-v0", is_minari=True).arrays()
    assert data.returns.tolist() == lengths
    assert data.terminations.sum() == 3
    assert data.observations[""].shape == (sum(lengths), 4)
