"""Taps: values of programs in their order, and nothing in a program without them."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.xla.taps import collect_taps, tap


def count_up(start):
    """Adds 1 in a loop, a branch and a gradient, and offers each result."""

    def body(i, x):
        def add(x):
            value, gradient = jax.value_and_grad(jnp.square)(x)
            tap("square", lambda: {"value": value, "gradient": gradient})
            return x + 1

        return jax.lax.cond(i % 2 == 0, add, lambda x: x, x)

    return jax.lax.fori_loop(0, 4, body, start)


def test_a_program_without_collection_has_no_taps():
    assert "callback" not in str(jax.make_jaxpr(count_up)(3.0))


def test_values_within_loops_are_collected_in_their_order():
    with collect_taps() as found:
        result = jax.jit(lambda x: count_up(x))(3.0)
    assert result == 5
    assert [(each.name, float(each.value["value"])) for each in found] == [
        ("square", 9.0),
        ("square", 16.0),
    ]
    assert float(found[1].value["gradient"]) == 8.0
    assert isinstance(found[0].value["value"], np.ndarray | np.generic)


def test_programs_of_other_threads_and_outer_collections_are_not_tapped():
    with collect_taps() as outer:
        with collect_taps() as inner, ThreadPoolExecutor() as threads:
            threads.submit(lambda: tap("other", lambda: 1.0)).result()
            tap("inner", lambda: 2.0)
        tap("outer", lambda: 3.0)
    assert [[each.name for each in found] for found in (outer, inner)] == [
        ["outer"],
        ["inner"],
    ]
