"""Members of observations without a fixed shape: dropped, or ids of words."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from odd_environments import Says

from rlcli.assembly import build_environment
from rlcli.environments.adapters import text
from rlcli.recipe import load_recipe

# Words of the missions of MiniGrid and BabyAI.
WORDS = [
    "red",
    "green",
    "blue",
    "purple",
    "yellow",
    "grey",
    "ball",
    "box",
    "key",
    "door",
    "wall",
    "floor",
    "goal",
    "lava",
    "go",
    "to",
    "the",
    "a",
    "an",
    "pick",
    "up",
    "put",
    "next",
    "open",
    "then",
    "after",
    "you",
    "and",
    "get",
    "square",
    "on",
    "your",
    "left",
    "right",
    "in",
    "front",
    "of",
    "behind",
    "use",
    "it",
    "reach",
    "avoid",
    "traverse",
    "rooms",
    "matching",
    "object",
    "at",
    "end",
    "hallway",
    "fetch",
    "must",
    "unlock",
    "near",
    "with",
    "color",
    "crossing",
    "through",
    "opening",
    "moving",
    "obstacles",
]


@pytest.fixture
def says():
    gymnasium.register("rlcli_test/Says-v0", Says, max_episode_steps=5)
    text._note_dropped.cache_clear()
    yield "gymnasium/rlcli_test/Says-v0"
    gymnasium.registry.pop("rlcli_test/Says-v0")


def run(name, **options):
    data = {"environment": {"name": name, "num_envs": 2} | options, "updater": "ppo"}
    env = build_environment(load_recipe(data), 1)
    state, obs = env.reset(np.array([1], np.uint32))
    timestep = env.step(state, np.zeros((1, 2), np.int32))[1]
    env.host.close(state)
    return env, obs, timestep


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.slow
def test_members_without_a_shape_are_dropped_with_a_note(says, vectorization, capfd):
    env, obs, timestep = run(says, vectorization=vectorization)
    assert [*env.observation] == [*obs] == [*timestep.obs] == ["seen"]
    np.testing.assert_array_equal(obs["seen"], np.full((1, 2, 2), 3))
    note = "dropped for want of a fixed shape: `many`, `said`; `text: tokens`"
    assert capfd.readouterr().err.count(note) == 1


def test_texts_are_the_ids_of_their_words(says) -> None:
    env, obs, timestep = run(says, text="tokens")
    assert sorted(env.observation) == ["said", "seen"]
    first, second = obs["said"][0, 1], timestep.obs["said"][0, 1]
    go, to, a, *rest = first.tolist()
    assert second.tolist() == [a, go] + [0] * 30 and rest == [0] * 29
    assert len({go, to, a, 0}) == 4
    assert all(space == 512 for space in env.observation["said"].nvec)


def test_the_words_of_minigrid_have_distinct_ids() -> None:
    ids = [text.encode(word)[0] for word in WORDS]
    assert len({*ids}) == len(WORDS) and min(ids) > 0 and max(ids) < text.VOCABULARY
    long = text.encode("red " * 50)
    assert long.tolist() == [text.encode("red")[0]] * text.MAX_TOKENS


@pytest.mark.parametrize("mode", ["drop", "tokens"])
def test_missions_of_minigrid_are_texts(mode) -> None:
    pytest.importorskip("minigrid")
    _, obs, _ = run("gymnasium/BabyAI-GoToRedBallGrey-v0", text=mode)
    assert ("mission" in obs) == (mode == "tokens")
    assert obs["image"].shape == (1, 2, 7, 7, 3)
    if mode == "tokens":
        expected = text.encode("go to the red ball")
        np.testing.assert_array_equal(obs["mission"][0, 0], expected)
