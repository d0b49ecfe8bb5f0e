"""The presets of deep Q-learning have the parts and numbers of their papers."""

import pytest

from rlcli import registry

# Hessel et al. (2018), table 1 (https://arxiv.org/abs/1710.02298): multi-step returns
# of 3 steps; priorities to the power of 0.5; importance weights from 0.4 to 1; noisy
# layers instead of ε.
RAINBOW = {
    "policy": {"name": "epsilon_greedy", "epsilon": 0.0},
    "tracer": {"name": "n_step", "n": 3, "gamma": 0.99},
    "replay": {"name": "prioritized", "alpha": 0.5, "beta": {"from": 0.4, "to": 1.0}},
    "head": {"name": "categorical", "dueling": True, "noisy": True},
    "unroll": 1,
}


def test_rainbow_has_the_numbers_of_its_paper():
    part = registry.find("updater", "rainbow")
    assert part.preset_of == "double_q_learning"
    facts = {key: part.facts[key] for key in RAINBOW}
    assert facts == RAINBOW
    assert registry.options(part.factory)["priority"].default == "loss"


@pytest.mark.parametrize(
    ("name", "rule", "head"),
    [
        ("dqn", "q_learning", None),
        ("double_dqn", "double_q_learning", None),
        ("dueling_dqn", "double_q_learning", {"dueling": True}),
        ("c51", "q_learning", {"name": "categorical"}),
        ("qr_dqn", "q_learning", {"name": "quantile"}),
        ("iqn", "q_learning", {"name": "implicit_quantile"}),
    ],
)
def test_a_preset_is_a_rule_with_a_head_a_uniform_replay_and_a_target(name, rule, head):
    part = registry.find("updater", name)
    assert part.preset_of == rule
    assert part.facts.get("head") == head
    expected = ("epsilon_greedy", "n_step", "uniform", 1)
    keys = ("policy", "tracer", "replay", "unroll")
    assert tuple(part.facts[key] for key in keys) == expected
    assert registry.options(part.factory)["target"].default == {"polyak": 0.005}
