"""Joint application: equal to separate calls, with one pass through a shared torso."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import equations
from random_trees import normal_like
from tiers import quick_first

from rlcli.distributions import action_masks
from rlcli.networks.functions import apply_jointly, separate_network, shared_network
from rlcli.networks.heads import action_values_head, state_value_head
from rlcli.networks.masking import mask_network
from rlcli.networks.memory import gru
from rlcli.networks.torsos import mlp

BOX = gymnasium.spaces.Box(-1, 1, (3,))
MASKED = gymnasium.spaces.Dict(
    {"place": BOX, action_masks.MASK: gymnasium.spaces.MultiBinary(4)}
)
TORSO = mlp(layers=[8, 5])


def build(make, space):
    heads = {"policy": action_values_head(4), "value": state_value_head()}
    networks = {
        name: mask_network(make(name, TORSO, head, space), head, space)
        for name, head in heads.items()
    }
    key = jax.random.key(0)
    shapes = jax.eval_shape(
        lambda: networks["policy"].init(key) | networks["value"].init(key)
    )
    return networks, normal_like(shapes)


def jointly(networks, obs, params):
    carries = dict.fromkeys(networks, ())
    outputs, _ = apply_jointly(networks, params, None, obs, carries, None)
    return outputs


def separately(networks, obs, params):
    return {
        name: network.apply(params, None, obs, (), None)[0]
        for name, network in networks.items()
    }


def loss(function, params):
    return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(function(params)))


def gradient(apply, networks, obs):
    return jax.grad(functools.partial(loss, functools.partial(apply, networks, obs)))


def observations(space):
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(6, 2, 3)).astype("f4")
    if space is BOX:
        return obs
    mask = rng.integers(0, 2, (6, 2, 4)).astype("i1")
    return {"place": obs, action_masks.MASK: mask | (np.arange(4) == 0)}


@pytest.mark.parametrize("space", quick_first([MASKED, BOX]), ids=["masked", "plain"])
@pytest.mark.parametrize("make", [separate_network, shared_network])
def test_outputs_and_gradients_are_those_of_separate_calls(make, space):
    networks, params = build(make, space)
    obs = observations(space)
    for expected, actual in zip(
        jax.tree.leaves(jax.jit(lambda p: separately(networks, obs, p))(params)),
        jax.tree.leaves(jax.jit(lambda p: jointly(networks, obs, p))(params)),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, expected)
    expected = jax.jit(gradient(separately, networks, obs))(params)
    actual = jax.jit(gradient(jointly, networks, obs))(params)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
        actual,
        expected,
    )


@pytest.mark.parametrize(
    ("make", "layers"), [(shared_network, 2), (separate_network, 4)]
)
def test_the_gradient_passes_through_a_shared_torso_once(make, layers):
    networks, params = build(make, BOX)
    obs = observations(BOX)
    heads = 2
    # A product for the outputs of each layer, and one each for the gradients of its
    # weights and of its inputs, which the first layer of a torso does not need.
    products = 3 * (layers + heads) - (1 if make is shared_network else 2)
    jaxpr = jax.make_jaxpr(gradient(jointly, networks, obs))(params)
    assert len(list(equations(jaxpr.jaxpr, "dot_general"))) == products


def test_functions_on_a_shared_memory_unroll_it_once():
    core = gru(size=3)
    networks, params = build(
        functools.partial(shared_network, core=core),
        BOX,
    )
    obs, first = observations(BOX), np.zeros((6, 2), bool)
    first[3, 0] = True
    carries = dict.fromkeys(networks, np.ones((2, 3), "f4"))

    def apply_all(params):
        return apply_jointly(networks, params, None, obs, carries, first)

    def apply_each(params):
        results = {
            name: network.apply(params, None, obs, carries[name], first)
            for name, network in networks.items()
        }
        return tuple({name: results[name][i] for name in results} for i in range(2))

    expected, actual = jax.jit(apply_each)(params), jax.jit(apply_all)(params)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    jaxpr = jax.make_jaxpr(jax.grad(functools.partial(loss, apply_all)))(params)
    assert len(list(equations(jaxpr.jaxpr, "scan"))) == 2  # forward and backward
