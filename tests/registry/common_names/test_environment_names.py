"""Environment names of other libraries are answered with rlcli's names for them."""

import re

import gymnasium
import pytest

from rlcli import registry
from rlcli.registry.common_names import suggest_environment

KNOWN = registry.names("environment")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("cartpole", "CartPole-v1"),
        ("CartPole-v0", "CartPole-v1"),
        ("gym/CartPole-v1", "gymnasium/CartPole-v1"),
        ("Pendulum-v0", "Pendulum-v1"),
        ("frozen_lake", "FrozenLake-v1"),
        ("HalfCheetah-v4", "gymnasium/HalfCheetah-v5"),
        ("Hopper-v5", "gymnasium/Hopper-v5"),
        ("ant", "gymnasium/Ant-v5"),
        ("InvertedPendulum-v4", "gymnasium/InvertedPendulum-v5"),
        ("LunarLander-v2", "gymnasium/LunarLander-v3"),
        ("ALE/Breakout-v5", "gymnasium/ALE/Breakout-v5"),
        ("PongNoFrameskip-v4", "gymnasium/ALE/Pong-v5"),
        ("Breakout-v5", "gymnasium/ALE/Breakout-v5"),
        ("Breakout-MinAtar", "MinAtar/Breakout-v1"),
        ("minatar/breakout", "MinAtar/Breakout-v1"),
        ("Catch", "bsuite/Catch"),
        ("deep_sea", "bsuite/DeepSea"),
        ("2048", "pgx/2048"),
        ("Navix-Empty-5x5-v0", "navix/Navix-Empty-5x5-v0"),
        ("Craftax-Symbolic-v1", "craftax/Craftax-Symbolic-v1"),
        ("MiniGrid-Empty-5x5-v0", "gymnasium/MiniGrid-Empty-5x5-v0"),
    ],
)
def test_a_name_of_another_library_suggests_the_right_spelling(name, suggestion):
    assert suggest_environment(name, KNOWN) == f"did you mean `{suggestion}`?"
    library, _, id = suggestion.partition("/")
    if library == "gymnasium" and not re.search("ALE/|MiniGrid-", id):
        assert id in gymnasium.registry


def test_an_environment_that_two_libraries_have_suggests_both():
    hint = suggest_environment("Swimmer-v4", KNOWN)
    assert hint == "did you mean `Swimmer-v0` or `gymnasium/Swimmer-v5`?"


def test_a_library_without_an_adapter_says_so():
    hint = suggest_environment("procgen/coinrun", KNOWN)
    assert hint.startswith("rlcli has no adapter for `procgen`")


def test_a_name_that_nothing_resembles_says_where_to_look():
    hint = suggest_environment("wibble", KNOWN)
    assert "`rlcli list environments`" in hint and "`gymnasium/ID`" in hint
