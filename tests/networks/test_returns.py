"""Heads that predict returns, with and without noise."""

import functools

import gymnasium
import jax
import numpy as np
import pytest
from random_trees import normal_like

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.networks.functions import separate_network, shared_network
from rlcli.networks.heads import return_head
from rlcli.networks.torsos import linear, table

BOX = gymnasium.spaces.Box(-1, 1, (3,))
KEY = jax.random.key(0)
OPTIONS = {
    "scalar": {},
    "categorical": {"atoms": 5, "low": 0.0, "high": 8.0},
    "quantile": {"quantiles": 5},
    "implicit_quantile": {"samples": 5, "target_samples": 7, "policy_samples": 3},
}
SIZES = {"scalar": 1, "categorical": 5, "quantile": 5, "implicit_quantile": 5}


def network(
    name, actions=(2,), role="learn", torso=None, make=separate_network, **options
):
    head = return_head(actions, role, name=name, **OPTIONS[name], **options)
    return make("q", torso or linear(), head, BOX)


def random_obs(shape=(4, 6), seed=0):
    return np.random.default_rng(seed).normal(size=(*shape, 3)).astype("f4")


def apply_head(net, params, key=None, obs=None):
    return compile_head(net)(params, key, random_obs() if obs is None else obs)


@functools.cache  # one program instead of one per operation
def compile_head(net):
    return jax.jit(lambda *inputs: net.apply(*inputs, (), None)[0])


def random_init(net):
    """Random parameters, more informative than the initial ones."""
    return normal_like(jax.eval_shape(net.init, KEY))


def test_there_are_four_return_heads():
    assert set(registry.names("head")) == set(OPTIONS)


@pytest.mark.parametrize("make", [separate_network, shared_network])
@pytest.mark.parametrize("actions", [(), (2,)], ids=["one", "all"])
@pytest.mark.parametrize("name", OPTIONS)
def test_every_leaf_has_axes_for_time_batch_actions_and_the_head(name, actions, make):
    for noisy in (False, True):
        net = network(name, actions, make=make, noisy=noisy, dueling=bool(actions))
        actual = jax.eval_shape(
            lambda key, net=net: apply_head(net, net.init(key), key), KEY
        )
        shapes = {leaf.shape for leaf in jax.tree.leaves(actual)}
        assert shapes == {(4, 6, *actions, SIZES[name])}


@pytest.mark.parametrize("name", OPTIONS)
def test_only_noisy_layers_and_sampled_fractions_depend_on_the_key(name):
    one, other = jax.random.split(KEY)
    for noisy in (False, True):
        net = network(name, noisy=noisy)
        params = random_init(net)
        actual = [
            np.asarray(apply_head(net, params, key)[0])
            for key in (None, None, one, other)
        ]
        np.testing.assert_array_equal(actual[0], actual[1])
        drawn = noisy or name == "implicit_quantile"
        assert np.any(actual[2] != actual[3]) == drawn
        assert np.any(actual[0] != actual[2]) == drawn


def test_weight_noise_is_factorised_with_the_scale_of_its_parameters():
    net = network("scalar", torso=linear(), noisy=True)
    params = jax.jit(net.init)(KEY)
    np.testing.assert_allclose(params["q"]["noise"]["w"], 0.5 / np.sqrt(3), rtol=1e-6)
    np.testing.assert_allclose(params["q"]["noise"]["b"], 0.5 / np.sqrt(3), rtol=1e-6)
    params, obs = normal_like(params), random_obs((1, 1))
    weights, shift = params["q"]["linear"]["w"], params["q"]["linear"]["b"]
    mean = obs @ weights + shift
    np.testing.assert_allclose(
        np.asarray(apply_head(net, params, obs=obs).value)[..., 0], mean, rtol=1e-5
    )
    keys = jax.random.split(KEY, 4_000)
    draw = jax.jit(jax.vmap(lambda key: apply_head(net, params, key, obs).value))
    draws = np.asarray(draw(keys)).reshape(-1, 2) - mean.ravel()
    # Var f(ε) = E|ε| = √(2/π) =: m, so the variance of a product of two is m².
    m = np.sqrt(2 / np.pi)
    wide = (obs.ravel() ** 2) @ params["q"]["noise"]["w"] ** 2
    expected = m * (m * wide + params["q"]["noise"]["b"] ** 2)
    np.testing.assert_allclose(draws.mean(0), 0, atol=0.1)
    np.testing.assert_allclose(draws.var(0), expected, rtol=0.15)


@pytest.mark.parametrize(
    "torso",
    [linear(), pytest.param(table(), marks=pytest.mark.slow)],
    ids=["linear", "table"],
)
def test_a_batch_has_the_noise_of_each_of_its_rows(torso):
    """A single row has no noisy weights, but is computed with the same noise."""
    net = network("categorical", torso=torso, noisy=True, dueling=True)
    params, obs = random_init(net), random_obs()
    (batch, _), single = apply_head(net, params, KEY, obs), np.zeros((4, 6, 2, 5))
    for t, b in np.ndindex(4, 6):
        row = obs[t : t + 1, b : b + 1]
        single[t, b] = apply_head(net, params, KEY, row).logits[0, 0]
    np.testing.assert_allclose(batch, single, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (4, 6)])
def test_without_a_key_the_scale_of_the_noise_is_not_used(shape):
    net = network("scalar", noisy=True)
    params = random_init(net)
    params["q"]["noise"] = jax.tree.map(lambda x: x * np.nan, params["q"]["noise"])
    assert np.all(np.isfinite(apply_head(net, params, obs=random_obs(shape)).value))


def test_quantile_fractions_are_midpoints():
    net = network("quantile")
    actual = jax.device_get(apply_head(net, random_init(net)))
    middles = [0.1, 0.3, 0.5, 0.7, 0.9]
    np.testing.assert_allclose(actual.fractions[2, 3], [middles] * 2, rtol=1e-6)


def test_atoms_are_equally_spaced_from_low_to_high():
    net = network("categorical")
    actual = jax.device_get(apply_head(net, random_init(net)))
    np.testing.assert_allclose(actual.atoms[2, 3], [[0, 2, 4, 6, 8]] * 2)


@pytest.mark.parametrize(
    ("role", "count"), [("learn", 5), ("bootstrap", 7), ("act", 3)]
)
def test_the_number_of_implicit_quantiles_depends_on_the_role(role, count):
    net = network("implicit_quantile", role=role)
    params = random_init(net)
    middles = (np.arange(count) + 0.5) / count
    fixed = np.asarray(apply_head(net, params).fractions)
    np.testing.assert_allclose(fixed[1, 2, 0], middles, rtol=1e-6)
    drawn = np.asarray(apply_head(net, params, KEY).fractions)
    assert drawn.shape == (4, 6, 2, count)
    np.testing.assert_array_equal(drawn[:, :, 0], drawn[:, :, 1])  # for all actions
    assert len(np.unique(drawn[:, :, 0])) == 4 * 6 * count  # different in each row
    assert drawn.min() >= 0 and drawn.max() <= 1


def test_implicit_quantiles_follow_their_equation():
    net = network("implicit_quantile", torso=linear())
    params = random_init(net)
    actual, obs = jax.device_get(apply_head(net, params, KEY)), random_obs()
    embed, last = params["q"]["fractions"], params["q"]["linear"]
    assert embed["w"].shape == (64, 3)
    for at in np.ndindex(2, 3):
        for place, tau in enumerate(actual.fractions[at][0]):
            cosines = np.cos(np.pi * np.arange(64) * tau)
            gate = np.maximum(cosines @ embed["w"] + embed["b"], 0)
            expected = (obs[at] * gate) @ last["w"] + last["b"]
            np.testing.assert_allclose(
                actual.values[at][:, place], expected, rtol=2e-3, atol=2e-3
            )


def test_a_hidden_layer_of_implicit_quantiles_follows_its_equation():
    net = network("implicit_quantile", torso=linear(), hidden=8)
    params = random_init(net)
    actual, obs = jax.device_get(apply_head(net, params, KEY)), random_obs()
    layers = params["q"]
    assert layers["hidden"]["w"].shape == (3, 8)
    for at in np.ndindex(2, 3):
        for place, tau in enumerate(actual.fractions[at][0]):
            cosines = np.cos(np.pi * np.arange(64) * tau)
            gate = cosines @ layers["fractions"]["w"] + layers["fractions"]["b"]
            unit = (obs[at] * np.maximum(gate, 0)) @ layers["hidden"]["w"]
            unit = np.asarray(unit + layers["hidden"]["b"])
            unit = (unit - unit.mean()) / np.sqrt(unit.var() + 1e-5)
            norm = layers["layer_norm"]
            unit = np.maximum(unit * norm["scale"] + norm["offset"], 0)
            expected = unit @ layers["linear"]["w"] + layers["linear"]["b"]
            np.testing.assert_allclose(
                actual.values[at][:, place], expected, rtol=5e-3, atol=5e-3
            )


def test_an_action_is_selected_and_evaluated_with_different_fractions():
    fractions = [
        np.asarray(apply_head(net, random_init(net), KEY).fractions)[..., 0, :]
        for net in (
            network("implicit_quantile", role=role)
            for role in ("learn", "bootstrap", "act")
        )
    ]
    learn, bootstrap, act = fractions
    assert not np.intersect1d(act, bootstrap).size
    assert not np.intersect1d(act, learn).size


@pytest.mark.parametrize("name", OPTIONS)
def test_a_dueling_head_has_advantages_whose_mean_is_zero(name):
    net = network(name, actions=(3,), torso=linear(), dueling=True)
    params = random_init(net)
    actual = np.asarray(apply_head(net, params)[0])
    layers = params["q"]
    without = {**layers, "linear_1": jax.tree.map(np.zeros_like, layers["linear_1"])}
    value = np.asarray(apply_head(net, {"q": without})[0])  # equal for all actions
    np.testing.assert_allclose(value, np.broadcast_to(value[..., :1, :], value.shape))
    np.testing.assert_allclose(actual.mean(-2), value.mean(-2), rtol=1e-3, atol=1e-4)
    assert actual.std(-2).min() > 1e-3


def test_initial_values_of_a_table_are_zero_except_for_atoms():
    space = gymnasium.spaces.Discrete(4)

    def initial_values(name):
        net = separate_network("q", table(), return_head((2,), name=name), space)
        outputs, _ = net.apply(net.init(KEY), KEY, np.arange(4), (), None)
        return outputs.particles().value

    names = ("scalar", "quantile", "implicit_quantile")
    for values in jax.jit(lambda: [initial_values(name) for name in names])():
        assert not np.any(values)


def test_a_dueling_head_without_actions_is_refused():
    with pytest.raises(
        RlcliError, match="a dueling head requires one output per action"
    ):
        network("quantile", (), dueling=True).init(KEY)


def test_atoms_must_increase():
    with pytest.raises(RlcliError, match="`low` 1 to `high` 1"):
        return_head((2,), name="categorical", low=1.0, high=1.0)
