"""Control flow: functions that run 0 or 1 times."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.xla.control_flow import run_if, update_if


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


@pytest.mark.parametrize("is_due", [False, True])
def test_run_if_reports_zeros_where_it_does_not_run(is_due):
    def function(state, change):
        return state + change, {"change": change}

    state, report = run_if(jnp.bool_(is_due), function, jnp.float32(1), jnp.float32(5))
    assert float(state) == (6 if is_due else 1)
    assert float(report["change"]) == (5 if is_due else 0)
