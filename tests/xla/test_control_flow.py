"""Control flow: functions that run 0 or 1 times, and selection between two pytrees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.xla.control_flow import run_if, tree_select, update_if


def double(iteration, state):
    return {"x": 2 * state["x"] + iteration, "n": state["n"] + 1}


@pytest.mark.parametrize("is_due", [False, True])
def test_update_if_updates_the_state_or_leaves_it(is_due):
    state = {"x": jnp.arange(3.0), "n": jnp.int32(4)}
    new = jax.jit(lambda flag: update_if(flag, double, state))(jnp.bool_(is_due))
    expected = double(0, state) if is_due else state
    jax.tree.map(np.testing.assert_array_equal, new, expected)


def test_update_if_with_a_batch_axis_selects_by_element():
    states = {"x": jnp.arange(3.0), "n": jnp.zeros(3, jnp.int32)}
    flags = jnp.array([True, False, True])
    new = jax.vmap(lambda flag, state: update_if(flag, double, state))(flags, states)
    np.testing.assert_array_equal(new["x"], [0, 1, 4])
    np.testing.assert_array_equal(new["n"], [1, 0, 1])


def test_run_if_applies_a_function_or_keeps_the_state():
    def function(state, amount):
        return state + amount, {"sum": state + amount, "flag": jnp.array(True)}

    def maybe(predicate):
        return run_if(predicate, function, jnp.float32(1), jnp.float32(2))

    for run in (maybe, jax.jit(maybe)):
        state, report = run(jnp.array(True))
        assert (state, report["sum"], report["flag"]) == (3, 3, True)
        state, report = run(jnp.array(False))
        assert (state, report["sum"], report["flag"]) == (1, 0, False)


def test_tree_select_returns_one_of_two_trees():
    new, old = {"a": jnp.ones(2)}, {"a": jnp.zeros(2)}
    assert np.all(tree_select(jnp.array(True), new, old)["a"] == 1)
    assert np.all(tree_select(jnp.array(False), new, old)["a"] == 0)
