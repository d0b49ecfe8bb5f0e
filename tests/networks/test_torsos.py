"""Torsos and what they read, against NumPy."""

import itertools

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import normal_like

from rlcli.networks.functions import Pair, separate_network, shared_network
from rlcli.networks.heads import state_value_head
from rlcli.networks.pytree import from_pytree
from rlcli.networks.torsos import Torso, bind_inputs, mlp

ROWS, INPUTS, UNITS = 6, 3, 4


def features(key=None, **options):
    """The inputs, the parameters of one layer, and its features."""
    made = hk.transform(mlp(layers=[UNITS], **options).features)
    x = np.random.default_rng(0).normal(size=(ROWS, INPUTS)).astype("f4")
    params = jax.device_get(jax.jit(made.init)(jax.random.key(0), x))
    return x, params, np.asarray(jax.jit(made.apply)(params, key, x))


@pytest.mark.parametrize("layer_norm", [False, True])
def test_dropout_is_between_the_weights_and_the_normalization(layer_norm):
    """Each row equals the equations for exactly one set of dropped units."""
    rate = 0.25
    x, params, found = features(jax.random.key(1), dropout=rate, layer_norm=layer_norm)
    pre = x @ params["linear"]["w"] + params["linear"]["b"]
    dropped = 0
    for row, features_found in zip(pre, found, strict=True):
        matches = []
        for mask in itertools.product([0, 1], repeat=UNITS):
            values = row * np.array(mask) / (1 - rate)
            if layer_norm:
                variance = values.var() + 1e-5
                values = (values - values.mean()) / np.sqrt(variance)
            if np.allclose(np.maximum(values, 0), features_found, atol=1e-4):
                matches.append(mask)
        assert matches  # units below 0 look alike, dropped or not
        dropped += min(UNITS - sum(mask) for mask in matches)
    assert dropped > 0


def test_without_a_key_nothing_is_dropped():
    *_, plain = features()
    *_, found = features(dropout=0.9)
    np.testing.assert_array_equal(found, plain)


BOX = gymnasium.spaces.Box
ENTITIES = gymnasium.spaces.Dict(items=BOX(-1, 1, (4, 2)), place=BOX(-1, 1, (3,)))
CHOICE = gymnasium.spaces.Discrete(5)


def set_features(weights, obs, numpy=np):
    return numpy.tanh(obs["items"] @ weights).max(axis=1) + obs["place"]


def haiku_set():
    def features(obs):
        init = hk.initializers.RandomNormal()
        return set_features(hk.get_parameter("w", (2, 3), init=init), obs, jnp)

    return features


def plain_set():
    return from_pytree(
        lambda key, obs: jax.random.normal(key, (obs["items"].shape[-1], 3)),
        lambda weights, obs: set_features(weights, obs, jnp),
    )


def linen_set():
    nn = pytest.importorskip("flax.linen")

    class Set(nn.Module):
        @nn.compact
        def __call__(self, obs):
            weights = self.param("w", nn.initializers.normal(), (2, 3))
            return set_features(weights, obs, jnp)

    return from_pytree(Set().init, Set().apply)


def equinox_set():
    eqx = pytest.importorskip("equinox")

    class Set(eqx.Module):
        weights: jax.Array

        def __call__(self, obs):
            return set_features(self.weights, obs, jnp)

    return from_pytree(
        lambda key, obs: Set(jax.random.normal(key, (2, 3))),
        lambda module, obs: module(obs),
    )


@pytest.mark.parametrize("make", [separate_network, shared_network])
@pytest.mark.parametrize("features", [haiku_set, plain_set, linen_set, equinox_set])
def test_a_torso_of_obs_reads_members_and_a_function_of_both_adds_the_action(
    make, features
):
    torso = bind_inputs(Torso(features(), lambda size, scale: hk.Linear(size)))
    obs = {"items": np.ones((6, 4, 2)), "place": np.ones((6, 3))}
    obs = jax.tree.map(np.asarray, normal_like(obs, 0))
    action = np.array([0, 1, 2, 3, 4, 0])
    for space, inputs in [
        (ENTITIES, obs),
        (Pair(ENTITIES, CHOICE), (obs, action)),
    ]:
        network = make("f", torso, state_value_head(), space)
        params = normal_like(jax.eval_shape(network.init, jax.random.key(0)), 1)
        actual = jax.jit(network.apply)(params, None, inputs, (), None)[0]
        modules = {**params.get("shared", {}), **params["f"]}
        (torso_module,) = {*modules} - {"linear", "linear_1"}
        (weights,) = jax.tree.leaves(modules[torso_module])
        rows = set_features(np.asarray(weights), obs)
        if inputs is not obs:
            joined = np.concatenate([rows, np.eye(5)[action]], axis=-1)
            layer = modules["linear"]
            rows = np.maximum(joined @ layer["w"] + layer["b"], 0)
        last = modules["linear_1" if inputs is not obs else "linear"]
        expected = (rows @ last["w"] + last["b"])[:, 0]
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_torso_of_obs_and_action_reads_both_and_needs_no_layer_to_join_them(
    is_foreign,
):
    def features(obs, action=None):
        return obs["place"] if action is None else obs["place"] * action[:, :3]

    def apply(params, obs, action=None):
        return features(obs, action) * params

    if is_foreign:
        features_read = from_pytree(lambda key, *inputs: jnp.ones(()), apply)
    else:
        features_read = features
    torso = bind_inputs(Torso(features_read, lambda size, scale: hk.Linear(size)))
    obs = {"items": np.ones((2, 4, 2), "f4"), "place": np.ones((2, 3), "f4")}
    for space, inputs, expected in [
        (ENTITIES, obs, np.ones((2, 3))),
        (Pair(ENTITIES, CHOICE), (obs, np.array([1, 4])), [[0, 1, 0], [0, 0, 0]]),
    ]:
        read = torso.input_reader(space)
        function = hk.transform(lambda each, read=read: torso.features(read(each)))
        params = function.init(jax.random.key(0), inputs)
        np.testing.assert_array_equal(function.apply(params, None, inputs), expected)


def between(obs, scale=2.0, action=None):
    return obs["place"] * scale * (1.0 if action is None else action[:, :3])


def by_name(obs, *, action=None):
    return between(obs, action=action)


def foreign_between():
    def apply(params, obs, scale=2.0, action=None):
        return between(obs, scale, action) * params

    return from_pytree(lambda key, obs, action=None: jnp.ones(()), apply)


def foreign_by_name():
    def apply(params, obs, *, action=None):
        return by_name(obs, action=action) * params

    return from_pytree(lambda key, obs, action: jnp.ones(()), apply)


@pytest.mark.parametrize(
    "features", [between, by_name, foreign_between(), foreign_by_name()]
)
def test_the_action_gets_to_its_parameter_wherever_that_stands(features):
    torso = bind_inputs(Torso(features, lambda size, scale: hk.Linear(size)))
    inputs = {"obs": {"place": np.ones((2, 3), "f4")}, "action": np.eye(5)[[1, 4]]}
    function = hk.transform(torso.features)
    params = function.init(jax.random.key(0), inputs)
    expected = 2 * np.array([[0, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(function.apply(params, None, inputs), expected)
