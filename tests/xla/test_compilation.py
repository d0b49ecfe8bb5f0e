"""Compiler options: programs that run once compile faster, with the same bits."""

import jax
import numpy as np
import pytest

from rlcli import loop, recipe
from rlcli.assembly import build
from rlcli.xla import backend, compilation

_LEVEL = "xla_backend_optimization_level"


def test_a_level_that_the_user_has_set_takes_precedence(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_prefer_vector_width=512")
    assert compilation.options_for_one_call() == {_LEVEL: 1}
    with backend.assume_backend("cuda"):
        assert compilation.options_for_one_call() == {}
    monkeypatch.setenv("XLA_FLAGS", f"--{_LEVEL}=3")
    assert compilation.options_for_one_call() == {}


@pytest.mark.xla
@pytest.mark.parametrize(
    "name", ["dqn_cartpole", "ppo_pendulum", "r2d2_memory_chain", "ppo_breakout"]
)
def test_the_first_state_has_the_bits_of_full_optimization(name, monkeypatch):
    def first_state():
        state = loop.make_loop(build(recipe.load_recipe(name))).begin()
        return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]

    monkeypatch.setattr(compilation, "options_for_one_call", lambda: {_LEVEL: 1})
    fast = first_state()
    monkeypatch.setattr(compilation, "options_for_one_call", lambda: {_LEVEL: 3})
    jax.tree.map(np.testing.assert_array_equal, fast, first_state())
