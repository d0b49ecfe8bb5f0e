"""The options of replays: their documented default values."""

import pytest

from rlcli import registry
from rlcli.replays import sequences

RING = {"capacity": 50_000, "batch_size": 32}
PREFILL = {"prefill": None, "prefill_fraction": None}
DEFAULTS = {
    "uniform": {**RING, "replacement": True, **PREFILL},
    "prioritized": {
        **RING,
        "by": "td_error",
        "alpha": 0.6,
        "beta": 0.4,
        "epsilon": 1e-6,
        "sort_every": 1_000,
        "frames": None,
        **PREFILL,
    },
    "frames": {
        **RING,
        "replacement": True,
        "stack": 4,
        "axis": -1,
        "padding": "repeat",
        "ends": None,
    },
    "sequences": {
        **RING,
        "length": 40,
        "burn_in": 0,
        "overlap": None,
        "priorities": None,
    },
    "episodes": {"capacity": 50_000, "batch_size": None, "length": 1_000},
    "hindsight": {**RING, "strategy": "future", "k": 4},
    "dataset": {"path": None, "minari": None, "batch_size": 256},
}


def test_every_replay_has_its_default_values_here():
    assert registry.names("replay") == sorted(DEFAULTS)


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_options_of_a_replay_have_the_documented_default_values(name):
    options = registry.options(registry.find("replay", name).factory)
    assert {key: each.default for key, each in options.items()} == DEFAULTS[name]


def test_priorities_of_sequences_are_by_default_those_of_the_paper():
    """Appendix A of Kapturowski et al. (2019), whose epsilon is not published."""
    published = sequences._PUBLISHED_PRIORITIES
    assert published == {"eta": 0.9, "alpha": 0.9, "beta": 0.6, "epsilon": 1e-6}
