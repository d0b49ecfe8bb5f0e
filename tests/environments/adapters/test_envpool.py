"""EnvPool: what is checked before the library is used."""

import pytest

from rlcli.environments.adapters import envpool
from rlcli.errors import RlcliError
from rlcli.xla import threads


def test_a_recipe_cannot_ask_for_more_threads_than_eight_per_core(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 2)
    envpool._check_threads("environment `envpool/Pong-v5`", 16)
    with pytest.raises(RlcliError, match="`num_threads` is `17`"):
        envpool._check_threads("environment `envpool/Pong-v5`", 17)
