"""Networks: shapes, initial parameters and shared parameters."""

import functools
import itertools

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple
from random_trees import normal_like
from wording import mentions

from rlcli import distributions
from rlcli.errors import RlcliError
from rlcli.networks.functions import (
    Pair,
    flat_reader,
    forward_pass,
    separate_network,
    shared_network,
)
from rlcli.networks.heads import (
    action_values_head,
    distribution_head,
    return_head,
    state_value_head,
)
from rlcli.networks.inputs import image_reader
from rlcli.networks.torsos import linear, mlp, table

BOX = gymnasium.spaces.Box(-1, 1, (2, 3))
CHOICE = gymnasium.spaces.Discrete(5, start=2)
TORSOS = {"table": table(), "linear": linear(), "mlp": mlp(layers=[8, 4])}
NORMAL = distributions.normal((2,))
HEADS = {
    "action values": (action_values_head(3), (3,)),
    "dueling": (action_values_head(3, dueling=True), (3,)),
    "state value": (state_value_head(), ()),
    "logits": (distribution_head(distributions.categorical(4)), (4,)),
    "means and scales": (distribution_head(NORMAL), (4,)),
}


def observations(space, leading, seed=0):
    rng = np.random.default_rng(seed)
    if isinstance(space, gymnasium.spaces.Discrete):
        return space.start + rng.integers(0, space.n, leading)
    return rng.normal(size=(*leading, *space.shape)).astype("f4")


def apply_network(network, params, obs):
    outputs, carry = compile_network(network)(params, obs)
    assert carry == ()  # feed-forward
    return np.asarray(outputs)


@functools.cache  # one program instead of one per operation
def compile_network(network):
    return jax.jit(lambda params, obs: network.apply(params, None, obs, (), None))


def init_params(network):
    return jax.jit(network.init)(jax.random.key(0))


def random_params(network, seed=0):
    """Random parameters with the shapes of a network."""
    return normal_like(jax.eval_shape(network.init, jax.random.key(0)), seed)


@pytest.mark.parametrize("space", [BOX, CHOICE], ids=["box", "choice"])
@pytest.mark.parametrize("torso", TORSOS.values(), ids=TORSOS)
@pytest.mark.parametrize(("head", "shape"), HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("make", [separate_network, shared_network])
def test_outputs_have_leading_time_and_batch_axes(make, head, shape, torso, space):
    network = make("f", torso, head, space)
    params = jax.eval_shape(network.init, jax.random.key(0))
    for leading in [(7, 4), (1, 1), (6,)]:
        obs = observations(space, leading)
        outputs, _ = jax.eval_shape(network.apply, params, None, obs, (), None)
        assert outputs.shape == (*leading, *shape)
        assert outputs.dtype == jnp.float32
        assert head.shape == shape


@pytest.mark.parametrize("torso", ["table", "linear"])
def test_initial_outputs_of_table_and_linear_are_zero(torso):
    def initial_outputs(key, head, space):
        network = separate_network("f", TORSOS[torso], head, space)
        obs = observations(space, (3, 2))
        return network.apply(network.init(key), None, obs, (), None)[0]

    @jax.jit
    def every_output(key):
        pairs = itertools.product(HEADS.values(), (BOX, CHOICE))
        return [initial_outputs(key, head, space) for (head, _), space in pairs]

    for outputs in every_output(jax.random.key(0)):
        assert not np.any(outputs)


def test_a_table_has_the_given_initial_value():
    for dueling in (False, True):
        head = action_values_head(3, dueling=dueling)
        network = separate_network("q", table(initial=0.75), head, CHOICE)
        params = init_params(network)
        actual = apply_network(network, params, observations(CHOICE, (4,)))
        np.testing.assert_array_equal(actual, np.full((4, 3), 0.75, np.float32))


def test_a_table_has_one_number_per_observation_and_output():
    network = separate_network("f", table(), action_values_head(3), CHOICE)
    params = random_params(network)
    (leaf,) = jax.tree.leaves(params)
    assert leaf.shape == (5, 3)
    numbers = jax.tree.map(lambda _: np.arange(15, dtype="f4").reshape(5, 3), params)
    for state in range(5):
        row = apply_network(network, numbers, np.array([2 + state]))
        np.testing.assert_array_equal(row, [3 * state + np.arange(3)])


def test_a_linear_function_is_a_matrix_product_plus_a_bias():
    network = separate_network("f", linear(), action_values_head(3), BOX)
    params = random_params(network)
    (layer,) = params["f"].values()
    obs = observations(BOX, (4, 2))
    expected = obs.reshape(4, 2, 6) @ layer["w"] + layer["b"]
    np.testing.assert_allclose(apply_network(network, params, obs), expected, rtol=1e-4)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    # The approximation of Hendrycks & Gimpel, 2016
    "gelu": lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_mlp_equals_that_of_numpy(activation):
    network = separate_network(
        "f", mlp(layers=[8, 4], activation=activation), state_value_head(), BOX
    )
    params = random_params(network)
    hidden = observations(BOX, (3,)).reshape(3, 6)
    *layers, last = (params["f"][name] for name in ("linear", "linear_1", "linear_2"))
    for layer in layers:
        hidden = ACTIVATIONS[activation](hidden @ layer["w"] + layer["b"])
    expected = (hidden @ last["w"] + last["b"])[:, 0]
    actual = apply_network(network, params, observations(BOX, (3,)))
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_layer_norm_normalizes_the_layers():
    torso = mlp(layers=[16], layer_norm=True)
    params = separate_network("f", torso, state_value_head(), BOX).init(
        jax.random.key(0)
    )
    assert params["f"]["layer_norm"]["scale"].shape == (16,)
    features = hk.without_apply_rng(hk.transform(torso.features))
    obs = observations(BOX, (5,)).reshape(5, 6)
    both = features.apply(features.init(jax.random.key(0), obs), obs)
    assert both.shape == (5, 16)
    assert np.all(both >= 0)  # the activation follows the norm


def test_orthogonal_layers_are_orthogonal_and_the_initial_policy_is_almost_uniform():
    torso = mlp(layers=[32], init="orthogonal")
    head = distribution_head(distributions.categorical(4))
    params = init_params(separate_network("policy", torso, head, BOX))
    layers = ("linear", "linear_1")
    first, last = (np.asarray(params["policy"][name]["w"]) for name in layers)
    np.testing.assert_allclose(first @ first.T, 2 * np.eye(6), atol=1e-5)
    np.testing.assert_allclose(last.T @ last, 1e-4 * np.eye(4), atol=1e-9)


def test_dueling_is_value_plus_advantage_minus_mean_advantage():
    network = separate_network("f", linear(), action_values_head(3, dueling=True), BOX)
    params = random_params(network)
    value, advantage = params["f"]["linear"], params["f"]["linear_1"]
    assert (value["w"].shape, advantage["w"].shape) == ((6, 1), (6, 3))
    obs = observations(BOX, (5,))
    rows = obs.reshape(5, 6)
    v, a = (rows @ each["w"] + each["b"] for each in (value, advantage))
    expected = v + a - a.mean(-1, keepdims=True)
    np.testing.assert_allclose(apply_network(network, params, obs), expected, rtol=1e-3)


def test_normal_scales_are_initially_one_and_independent_of_observations():
    network = separate_network(
        "policy", mlp(layers=[8]), distribution_head(NORMAL), BOX
    )
    params = init_params(network)
    outputs = apply_network(network, params, observations(BOX, (6,)))
    assert not np.any(outputs[:, 2:])  # log-scales
    params["policy"]["~"]["log_scale"] = np.array([1.0, -1.0], "f4")
    outputs = apply_network(network, params, observations(BOX, (6,), seed=1))
    np.testing.assert_array_equal(outputs[:, 2:], np.tile([1.0, -1.0], (6, 1)))


def test_scales_of_the_members_of_an_action_are_independent_of_observations():
    inner = Tuple([Discrete(3), Box(-1, 1, (2,))])
    family = distributions.distribution_for(Tuple([Box(-1, 1, (1,)), inner]))
    network = separate_network(
        "policy", mlp(layers=[8]), distribution_head(family), BOX
    )
    params = init_params(network)
    assert not np.any(apply_network(network, params, observations(BOX, (6,)))[:, 1])
    params["policy"]["~"]["log_scale"] = np.array([1.0, 2.0, 3.0], "f4")
    images = 1e6 * observations(BOX, (6,), seed=1)
    outputs = apply_network(network, params, images)
    assert outputs.shape == (6, 9)  # μ, log σ; 3 logits, two μ, two log σ
    np.testing.assert_array_equal(outputs[:, [1, 7, 8]], [[1, 2, 3]] * 6)
    assert np.all(np.std(outputs[:, [0, 2, 3, 4, 5, 6]], axis=0) > 1)


@pytest.mark.slow
def test_a_shared_torso_has_gradients_of_every_function_and_heads_their_own():
    torso = mlp(layers=[8])
    policy = shared_network("policy", torso, action_values_head(3), BOX)
    value = shared_network("value", torso, state_value_head(), BOX)
    key = jax.random.key(0)
    params = {**policy.init(key), **value.init(key)}
    assert set(params) == {"shared", "policy", "value"}
    for ours, theirs in zip(
        jax.tree.leaves(policy.init(key)["shared"]),
        jax.tree.leaves(value.init(key)["shared"]),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)  # for every function
    obs = observations(BOX, (6,))

    def moved(network):
        """The groups that a loss of this function has a gradient for."""

        def loss(params):
            return jnp.sum(network.apply(params, None, obs, (), None)[0] ** 2)

        gradient = jax.grad(loss)(params)
        return {name for name in params if np.any(flatten_leaves(gradient[name]))}

    assert moved(policy) == {"shared", "policy"}
    assert moved(value) == {"shared", "value"}


def flatten_leaves(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_shared_and_separate_networks_compute_the_same_function():
    torso, head = mlp(layers=[8]), action_values_head(3)
    ours, theirs = (
        separate_network("q", torso, head, BOX),
        shared_network("q", torso, head, BOX),
    )
    both = random_params(theirs)
    joined = {
        "q": {"linear": both["shared"]["linear"], "linear_1": both["q"]["linear"]}
    }
    obs = observations(BOX, (4, 2))
    np.testing.assert_allclose(
        apply_network(ours, joined, obs), apply_network(theirs, both, obs), rtol=1e-6
    )


@pytest.mark.slow
def test_initial_parameters_of_a_group_do_not_depend_on_other_groups():
    torso, key = mlp(layers=[4]), jax.random.key(7)
    alone = separate_network("policy", torso, state_value_head(), BOX).init(key)
    again = separate_network("policy", torso, state_value_head(), BOX).init(key)
    other = separate_network("value", torso, state_value_head(), BOX).init(key)
    np.testing.assert_array_equal(flatten_leaves(alone), flatten_leaves(again))
    assert not np.any(np.isin(weights(alone["policy"]), weights(other["value"])))
    heads = [action_values_head(3), state_value_head()]
    shared = [
        shared_network("x", torso, head, BOX).init(key)["shared"] for head in heads
    ]
    np.testing.assert_array_equal(flatten_leaves(shared[0]), flatten_leaves(shared[1]))


def weights(group):
    return group["linear"]["w"]


def test_discrete_observations_are_one_hot():
    one_hot = flat_reader(CHOICE)(np.array([2, 6]))
    np.testing.assert_array_equal(one_hot, np.eye(5)[[0, 4]])


def test_uint8_observations_are_converted_to_float32():
    pixels = gymnasium.spaces.Box(0, 255, (2, 2), np.uint8)
    vector = flat_reader(pixels)(np.full((3, 2, 2), 200, np.uint8))
    assert (vector.shape, vector.dtype) == ((3, 4), jnp.float32)
    assert np.all(vector == 200.0)


SPACES = {
    "choices": gymnasium.spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [2, 3]]),
    "bits": gymnasium.spaces.MultiBinary((2, 3)),
    "row": gymnasium.spaces.Tuple([CHOICE, BOX]),
    "names": gymnasium.spaces.Dict({"b": CHOICE, "a": gymnasium.spaces.Dict(c=BOX)}),
    "pair": Pair(BOX, CHOICE),
    "empty and row": gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 1, (0, 2)), BOX]),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_composite_observations_are_flattened_like_gymnasium(space):
    space.seed(0)
    samples = [space.sample() for _ in range(6)]
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *samples)
    expected = [gymnasium.spaces.flatten(space, sample) for sample in samples]
    np.testing.assert_allclose(jax.jit(flat_reader(space))(batch), expected, rtol=1e-6)
    network = separate_network("f", linear(), action_values_head(3), space)
    folded = jax.tree.map(lambda leaf: leaf.reshape((2, 3, *leaf.shape[1:])), batch)
    outputs = apply_network(network, random_params(network), folded)
    assert outputs.shape == (2, 3, 3)


def test_unsupported_observation_spaces_are_refused():
    with pytest.raises(RlcliError, match="cannot read observations of Sequence"):
        flat_reader(gymnasium.spaces.Sequence(BOX))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (0, 8, 3)])
def test_an_observation_without_numbers_is_read_as_zero(shape):
    empty = gymnasium.spaces.Box(0, 1, shape, np.float32)
    batch = np.zeros((5, *shape), np.float32)
    np.testing.assert_array_equal(flat_reader(empty)(batch), np.zeros((5, 1)))
    (read,) = image_reader(empty)(batch)
    np.testing.assert_array_equal(read, np.zeros((5, 1)))
    both = gymnasium.spaces.Tuple([empty, gymnasium.spaces.Discrete(2)])
    pair = batch[:2], np.array([1, 0])
    np.testing.assert_array_equal(flat_reader(both)(pair), [[0, 1], [1, 0]])


def test_a_table_of_pairs_has_one_number_per_pair():
    network = separate_network(
        "q", table(), return_head(), Pair(CHOICE, gymnasium.spaces.Discrete(3))
    )
    params = random_params(network)
    (leaf,) = jax.tree.leaves(params)
    assert leaf.shape == (15, 1)
    numbers = jax.tree.map(lambda _: np.arange(15, dtype="f4")[:, None], params)
    states, actions = np.mgrid[2:7, 0:3]
    actual, _ = compile_network(network)(numbers, (states, actions))
    values = np.asarray(actual.value)[..., 0]
    np.testing.assert_array_equal(values, np.arange(15).reshape(5, 3))


def test_a_shared_torso_concatenates_its_features_with_the_action_of_a_pair():
    torso, act = mlp(layers=[8]), gymnasium.spaces.Box(-1, 1, (2,))
    network = shared_network("critic", torso, return_head(), Pair(BOX, act))
    beside = shared_network("policy", torso, action_values_head(3), BOX)
    params = random_params(network)
    assert jax.tree.map(jnp.shape, params["shared"]) == jax.tree.map(
        jnp.shape, random_params(beside)["shared"]
    )
    obs, action = observations(BOX, (4, 2)), observations(act, (4, 2), seed=1)

    def layer(inputs, each):
        return np.maximum(inputs @ each["w"] + each["b"], 0)

    features = layer(obs.reshape(4, 2, 6), params["shared"]["linear"])
    joined = layer(np.concatenate([features, action], -1), params["critic"]["linear"])
    last = params["critic"]["linear_1"]
    actual, _ = compile_network(network)(params, (obs, action))
    np.testing.assert_allclose(
        actual.value, joined @ last["w"] + last["b"], rtol=1e-3, atol=1e-4
    )


def pairwise(obs, action):
    rows = jnp.concatenate([obs.reshape(len(obs), -1), action], axis=-1)
    return hk.Linear(1)(rows)[:, 0]


@pytest.mark.parametrize("make", ["own", "sharing", "forward pass"])
def test_each_ensemble_member_equals_a_single_network(make):
    space = Pair(BOX, gymnasium.spaces.Box(-1, 1, (2,)))

    def make_network(copies=None):
        if make == "forward pass":
            return forward_pass("q", pairwise, return_head(), space, copies)
        of_torso = {"own": separate_network, "sharing": shared_network}[make]
        return of_torso("q", mlp(layers=[8]), return_head(), space, copies)

    twins = make_network(2)
    params = random_params(twins)
    pair = observations(BOX, (4, 3)), observations(space.spaces[1], (4, 3), seed=1)
    prediction, _ = compile_network(twins)(params, pair)
    actual, single = np.asarray(prediction.value), make_network()
    assert actual.shape == (2, 4, 3, 1)
    assert np.all(actual[0] != actual[1])
    for copy in range(2):
        own_params = jax.tree.map(lambda leaf, at=copy: leaf[at], params["q"])
        alone, _ = compile_network(single)({**params, "q": own_params}, pair)
        np.testing.assert_allclose(actual[copy], alone.value, rtol=1e-3, atol=1e-4)


def test_ensemble_members_have_different_initial_parameters():
    network = separate_network("q", mlp(layers=[8]), return_head((2,)), BOX, 2)
    params = jax.device_get(init_params(network))
    first, last = (params["q"][name]["w"] for name in ("linear", "linear_1"))
    assert first.shape == (2, 6, 8) and last.shape == (2, 8, 2)
    assert np.all(first[0] != first[1]) and np.all(last[0] != last[1])


def test_ensemble_members_have_different_keys():
    network = separate_network("q", linear(), return_head((2,), noisy=True), BOX, 2)

    @jax.jit
    def values(keys):
        params, obs = network.init(keys[0]), observations(BOX, (5,))
        return network.apply(params, keys[1], obs, (), None)[0].value

    first, second = np.asarray(values(jax.random.split(jax.random.key(0))))
    assert np.all(first != second)  # both are zero without noise


def test_a_user_defined_forward_pass_is_a_network():
    def forward(obs):
        return hk.Linear(3, w_init=jnp.ones)(obs.reshape(len(obs), -1))

    network = forward_pass("q", forward, action_values_head(3), BOX)
    params = init_params(network)
    obs = observations(BOX, (4, 2))
    expected = np.repeat(obs.sum((-1, -2))[..., None], 3, -1)
    np.testing.assert_allclose(apply_network(network, params, obs), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("forward", "given"),
    [
        (lambda obs: hk.Linear(4)(obs.reshape(2, -1)), "(2, 4)"),
        (lambda obs: hk.Linear(3)(obs.reshape(1, -1)), "(1, 3)"),  # no batch axis
        (lambda obs: hk.Linear(3)(obs), "(2, 2, 3)"),
        (lambda obs: {"q": hk.Linear(3)(obs.reshape(2, -1))}, "{'q': (2, 3)}"),
    ],
)
def test_a_forward_pass_with_outputs_of_another_shape_is_refused(forward, given):
    network = forward_pass("q", forward, action_values_head(3), BOX)
    with pytest.raises(RlcliError) as caught:
        network.init(jax.random.key(0))
    assert mentions(caught.value.message, "`q`", given, "expected (2, 3)")
    assert mentions(caught.value.hint, "(2, 2, 3)", "batch of 2")


def test_a_forward_pass_of_a_pair_takes_observation_and_action():
    space = Pair(BOX, gymnasium.spaces.Box(-1, 1, (2,)))
    network = forward_pass("q", pairwise, return_head(), space)
    with pytest.raises(RlcliError, match=r", expected \(2, 5\)") as caught:
        other = return_head(name="quantile", quantiles=5)
        forward_pass("q", pairwise, other, space).init(jax.random.key(0))
    assert mentions(caught.value.hint, "((2, 2, 3), (2, 2))", "batch of 2")
    pair = observations(BOX, (4, 3)), observations(space.spaces[1], (4, 3), seed=1)
    params = init_params(network)
    weights = np.asarray(params["q"]["linear"]["w"])[:, 0]
    expected = np.concatenate([pair[0].reshape(4, 3, 6), pair[1]], -1) @ weights
    actual, _ = compile_network(network)(params, pair)
    values = np.asarray(actual.value)[..., 0]
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)


def test_a_forward_pass_does_not_support_implicit_quantiles():
    with pytest.raises(
        RlcliError, match="does not support a user-defined forward pass"
    ):
        forward_pass("q", lambda obs: obs, return_head(name="implicit_quantile"), BOX)


def test_a_forward_pass_without_outputs_is_refused():
    network = forward_pass("q", lambda obs: None, action_values_head(3), BOX)
    with pytest.raises(RlcliError, match="returns shape None"):
        network.init(jax.random.key(0))
