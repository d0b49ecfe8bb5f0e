"""The outputs of activation functions, against ones that are computed by hand."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.networks.activations import find_activations

X = jnp.array([[1.0, -2.0], [3.0, 0.5]])
W = jnp.array([[1.0, -1.0, 0.0], [2.0, 0.0, 0.0]])


def layer(function, params, x):
    return function(x @ params["first"]["w"] + params["first"]["b"]) @ jnp.ones((3, 1))


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (jax.nn.relu, "relu"),
        (lambda x: jnp.maximum(x, 0), "relu"),
        (jnp.tanh, "tanh"),
        (jax.nn.elu, "elu"),
        (jax.jit(jax.nn.silu), "silu"),
    ],
)
def test_an_activation_is_found_with_the_layer_before_it(function, name):
    params = {"first": {"w": W, "b": jnp.ones(3)}}
    (found,) = find_activations(functools.partial(layer, function), params, X)
    assert (found.layer, found.function) == ("first", name)
    np.testing.assert_allclose(found.output, function(X @ W + 1), rtol=1e-6)


def test_the_tanh_within_a_gelu_is_no_activation():
    params = {"first": {"w": W, "b": jnp.ones(3)}}
    found = find_activations(functools.partial(layer, jax.nn.gelu), params, X)
    assert [each.function for each in found] == []


@pytest.mark.slow
def test_each_member_of_an_ensemble_and_each_layer_has_its_outputs():
    def forward(x):
        x = jax.nn.relu(hk.Linear(4)(x))
        x = jnp.tanh(hk.Linear(3)(x))
        return hk.Linear(1)(x)

    network = hk.without_apply_rng(hk.transform(forward))
    keys = jax.random.split(jax.random.key(0))
    params = jax.vmap(lambda key: network.init(key, X))(keys)
    members = jax.vmap(network.apply, in_axes=(0, None))
    found = find_activations(members, params, X)
    assert [(each.layer, each.function) for each in found] == [
        ("linear", "relu"),
        ("linear_1", "tanh"),
    ]
    hidden = jax.nn.relu(
        jnp.einsum("ni,cij->cnj", X, params["linear"]["w"])
        + params["linear"]["b"][:, None]
    )
    np.testing.assert_allclose(found[0].output, hidden, rtol=1e-5)
    assert found[1].output.shape == (2, 2, 3)
