"""Precision: products in bfloat16, everything that is stored in float32."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import equations

from rlcli import loop, recipe
from rlcli.assembly import build
from rlcli.networks.precision import compute_in


def network(inputs):
    hidden = jax.nn.relu(hk.LayerNorm(-1, True, True)(hk.Linear(32)(inputs)))
    return hk.Linear(3)(hidden)


def products(jaxpr):
    """The dtypes of the products of matrices, also in inner programs."""
    for equation in equations(jaxpr, "dot_general"):
        yield tuple(str(each.aval.dtype) for each in equation.invars)


@pytest.mark.slow
def test_layers_compute_in_bfloat16_and_the_rest_stays_in_float32():
    plain = hk.without_apply_rng(hk.transform(network))
    mixed = hk.without_apply_rng(hk.transform(compute_in("bfloat16", network)))
    inputs = jax.random.normal(jax.random.key(1), (64, 8))
    params = mixed.init(jax.random.key(0), inputs)
    expected = plain.init(jax.random.key(0), inputs)
    jax.tree.map(np.testing.assert_array_equal, params, expected)

    found, wanted = mixed.apply(params, inputs), plain.apply(params, inputs)
    assert found.dtype == jnp.float32
    error = np.abs(found - wanted).max()
    assert 0 < error < 0.05  # bfloat16 has 8 bits

    gradient = jax.grad(lambda p: jnp.sum(mixed.apply(p, inputs) ** 2))(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {np.dtype("float32")}
    program = jax.make_jaxpr(mixed.apply)(params, inputs)
    assert {*products(program)} == {("bfloat16", "bfloat16")}


def test_float32_is_the_function_itself():
    assert compute_in("float32", network) is network


RECIPES = ["dqn_cartpole", "ppo_cartpole", "sac_pendulum"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    RECIPES,
)
def test_a_recipe_trains_in_bfloat16_with_what_it_stores_in_float32(name):
    progress = {}
    for precision in ("float32", "bfloat16"):
        changes = ["train.seeds=1", f"train.precision={precision}"]
        run = loop.make_loop(build(recipe.load_recipe(name, changes)))
        begun = run.begin()
        start = jax.tree.map(np.asarray, begun.agent.learner.params)
        program = jax.make_jaxpr(lambda p, run=run: run.advance(p, 1))(begun)
        has_rounded = any("bfloat16" in each for each in products(program))
        assert has_rounded == (precision == "bfloat16")
        after, _ = run.advance(begun, 300 if name != "ppo_cartpole" else 2)
        progress[precision] = start, jax.tree.map(np.asarray, after.agent)
    (start, plain), (other_start, mixed) = progress.values()
    jax.tree.map(np.testing.assert_array_equal, start, other_start)
    dtypes = [[leaf.dtype for leaf in jax.tree.leaves(each)] for each in (plain, mixed)]
    assert dtypes[0] == dtypes[1]
    assert all(
        np.isfinite(leaf).all() for leaf in jax.tree.leaves(mixed.learner.params)
    )
