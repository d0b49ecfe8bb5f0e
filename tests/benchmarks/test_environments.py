"""The environment benchmark: pairs of environments that rlcli has."""

import pytest

import rlcli
from benchmarks.environments import PEERS

PAIRS = [(library, name) for library, peer in PEERS.items() for name in peer.pairs]


@pytest.mark.parametrize(("library", "name"), PAIRS)
def test_rlcli_has_the_environment_with_these_options(library, name):
    options = PEERS[library].options.get(name, {})
    assert rlcli.make(name, num_envs=2, **options).num_envs == 2


def test_options_belong_to_a_pair():
    for peer in PEERS.values():
        assert set(peer.options) <= set(peer.pairs)
