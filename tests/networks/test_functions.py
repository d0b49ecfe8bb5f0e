"""Networks: shapes, what they begin from, and what they share."""

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import distributions
from rlcli.errors import RlcliError
from rlcli.networks.functions import flat, forward_pass, own, sharing
from rlcli.networks.heads import action_values, parameters, state_value
from rlcli.networks.torsos import linear, mlp, table
from rlcli.spaces import zeros

BOX = gymnasium.spaces.Box(-1, 1, (2, 3))
CHOICE = gymnasium.spaces.Discrete(5, start=2)
TORSOS = {"table": table(), "linear": linear(), "mlp": mlp(layers=[8, 4])}
NORMAL = distributions.normal((2,))
HEADS = {
    "action values": (action_values(3), (3,)),
    "dueling": (action_values(3, dueling=True), (3,)),
    "state value": (state_value(), ()),
    "logits": (parameters(distributions.categorical(4)), (4,)),
    "means and scales": (parameters(NORMAL), (4,)),
}


def observations(space, leading, seed=0):
    rng = np.random.default_rng(seed)
    if isinstance(space, gymnasium.spaces.Discrete):
        return space.start + rng.integers(0, space.n, leading)
    return rng.normal(size=(*leading, *space.shape)).astype("f4")


def applied(network, params, obs):
    obs = jax.tree.map(jnp.asarray, obs)
    outputs, carry = network.apply(params, None, obs, (), None)
    assert carry == ()  # feed-forward
    return np.asarray(outputs)


@pytest.mark.parametrize("space", [BOX, CHOICE], ids=["box", "choice"])
@pytest.mark.parametrize("torso", TORSOS.values(), ids=TORSOS)
@pytest.mark.parametrize(("head", "shape"), HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("make", [own, sharing])
def test_outputs_have_time_and_batch_in_front(make, head, shape, torso, space):
    network = make("f", torso, head, space)

    def both(key, obs):
        return network.apply(network.init(key), None, obs, (), None)[0]

    for leading in [(7, 4), (1, 1), (6,)]:
        obs = observations(space, leading)
        outputs = jax.eval_shape(both, jax.random.key(0), obs)
        assert outputs.shape == (*leading, *shape)
        assert outputs.dtype == jnp.float32
        assert head.shape == shape


@pytest.mark.parametrize("torso", ["table", "linear"])
def test_a_table_and_a_linear_function_say_zero_at_first(torso):
    for space in (BOX, CHOICE):
        for head, _ in HEADS.values():
            network = own("f", TORSOS[torso], head, space)
            params = network.init(jax.random.key(0))
            assert not np.any(applied(network, params, observations(space, (3, 2))))


def test_a_table_begins_with_the_value_it_is_told():
    for dueling in (False, True):
        head = action_values(3, dueling=dueling)
        network = own("q", table(initial=0.75), head, CHOICE)
        params = network.init(jax.random.key(0))
        found = applied(network, params, observations(CHOICE, (4,)))
        np.testing.assert_array_equal(found, np.full((4, 3), 0.75, np.float32))


def test_a_table_has_one_number_per_observation_and_output():
    network = own("f", table(), action_values(3), CHOICE)
    params = network.init(jax.random.key(0))
    (leaf,) = jax.tree.leaves(params)
    assert leaf.shape == (5, 3)
    numbers = jax.tree.map(lambda leaf: jnp.arange(15.0).reshape(5, 3), params)
    for state in range(5):
        row = applied(network, numbers, np.array([2 + state]))
        np.testing.assert_array_equal(row, [3 * state + np.arange(3)])


def test_a_linear_function_is_a_matrix_and_a_shift():
    network = own("f", linear(), action_values(3), BOX)
    params = network.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype("f4"), params)
    (layer,) = params["f"].values()
    obs = observations(BOX, (4, 2))
    expected = obs.reshape(4, 2, 6) @ layer["w"] + layer["b"]
    np.testing.assert_allclose(applied(network, params, obs), expected, rtol=1e-4)


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu", "gelu", "silu"])
def test_an_mlp_is_what_it_is_in_numpy(activation):
    network = own("f", mlp(layers=[8, 4], activation=activation), state_value(), BOX)
    params = network.init(jax.random.key(0))
    act = np.tanh if activation == "tanh" else getattr(jax.nn, activation)
    hidden = observations(BOX, (3,)).reshape(3, 6)
    *layers, last = (params["f"][name] for name in ("linear", "linear_1", "linear_2"))
    for layer in layers:
        hidden = act(hidden @ layer["w"] + layer["b"])
    expected = (hidden @ last["w"] + last["b"])[:, 0]
    found = applied(network, params, observations(BOX, (3,)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_layers_may_be_normalized():
    torso = mlp(layers=[16], layer_norm=True)
    params = own("f", torso, state_value(), BOX).init(jax.random.key(0))
    assert params["f"]["layer_norm"]["scale"].shape == (16,)
    features = hk.without_apply_rng(hk.transform(torso.features))
    obs = observations(BOX, (5,)).reshape(5, 6)
    both = features.apply(features.init(jax.random.key(0), obs), obs)
    assert both.shape == (5, 16)
    assert np.all(both >= 0)  # activated after it


def test_orthogonal_layers_are_orthogonal_and_a_policy_begins_almost_uniform():
    torso = mlp(layers=[32], init="orthogonal")
    head = parameters(distributions.categorical(4))
    params = own("policy", torso, head, BOX).init(jax.random.key(0))
    first, last = params["policy"]["linear"]["w"], params["policy"]["linear_1"]["w"]
    np.testing.assert_allclose(first @ first.T, 2 * np.eye(6), atol=1e-5)
    np.testing.assert_allclose(last.T @ last, 1e-4 * np.eye(4), atol=1e-9)


def test_dueling_is_value_plus_advantage_less_its_mean():
    network = own("f", linear(), action_values(3, dueling=True), BOX)
    params = network.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype("f4"), params)
    value, advantage = params["f"]["linear"], params["f"]["linear_1"]
    assert (value["w"].shape, advantage["w"].shape) == ((6, 1), (6, 3))
    obs = observations(BOX, (5,))
    rows = obs.reshape(5, 6)
    v, a = (rows @ each["w"] + each["b"] for each in (value, advantage))
    expected = v + a - a.mean(-1, keepdims=True)
    np.testing.assert_allclose(applied(network, params, obs), expected, rtol=1e-3)


def test_the_scales_of_a_normal_policy_are_one_at_first_and_see_no_observation():
    network = own("policy", mlp(layers=[8]), parameters(NORMAL), BOX)
    params = network.init(jax.random.key(0))
    outputs = applied(network, params, observations(BOX, (6,)))
    assert not np.any(outputs[:, 2:])  # log-scales
    params["policy"]["~"]["log_scale"] = jnp.array([1.0, -1.0])
    outputs = applied(network, params, observations(BOX, (6,), seed=1))
    np.testing.assert_array_equal(outputs[:, 2:], np.tile([1.0, -1.0], (6, 1)))


def test_a_shared_torso_learns_from_every_function_and_heads_from_their_own():
    torso = mlp(layers=[8])
    policy = sharing("policy", torso, action_values(3), BOX)
    value = sharing("value", torso, state_value(), BOX)
    key = jax.random.key(0)
    params = {**policy.init(key), **value.init(key)}
    assert set(params) == {"shared", "policy", "value"}
    for ours, theirs in zip(
        jax.tree.leaves(policy.init(key)["shared"]),
        jax.tree.leaves(value.init(key)["shared"]),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)  # whoever makes it
    obs = observations(BOX, (6,))

    def moved(network):
        """The groups that a loss of this function has a gradient for."""

        def loss(params):
            return jnp.sum(network.apply(params, None, obs, (), None)[0] ** 2)

        gradient = jax.grad(loss)(params)
        return {name for name in params if np.any(flattened(gradient[name]))}

    assert moved(policy) == {"shared", "policy"}
    assert moved(value) == {"shared", "value"}


def flattened(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_a_shared_torso_under_a_head_is_the_same_function_as_an_own_one():
    torso, head = mlp(layers=[8]), action_values(3)
    ours, theirs = own("q", torso, head, BOX), sharing("q", torso, head, BOX)
    both = theirs.init(jax.random.key(0))
    joined = {
        "q": {"linear": both["shared"]["linear"], "linear_1": both["q"]["linear"]}
    }
    obs = observations(BOX, (4, 2))
    np.testing.assert_allclose(
        applied(ours, joined, obs), applied(theirs, both, obs), rtol=1e-6
    )


def test_a_group_begins_from_the_same_parameters_whatever_stands_beside_it():
    torso, key = mlp(layers=[4]), jax.random.key(7)
    alone = own("policy", torso, state_value(), BOX).init(key)
    again = own("policy", torso, state_value(), BOX).init(key)
    other = own("value", torso, state_value(), BOX).init(key)
    np.testing.assert_array_equal(flattened(alone), flattened(again))
    assert not np.any(np.isin(weights(alone["policy"]), weights(other["value"])))
    heads = [action_values(3), state_value()]
    shared = [sharing("x", torso, head, BOX).init(key)["shared"] for head in heads]
    np.testing.assert_array_equal(flattened(shared[0]), flattened(shared[1]))


def weights(group):
    return group["linear"]["w"]


def test_observations_of_a_choice_are_read_one_hot():
    one_hot = flat(CHOICE)(jnp.array([2, 6]))
    np.testing.assert_array_equal(one_hot, np.eye(5)[[0, 4]])


def test_observations_of_bytes_are_read_as_numbers():
    pixels = gymnasium.spaces.Box(0, 255, (2, 2), np.uint8)
    vector = flat(pixels)(jnp.full((3, 2, 2), 200, jnp.uint8))
    assert (vector.shape, vector.dtype) == ((3, 4), jnp.float32)
    assert np.all(vector == 200.0)


def test_observations_that_no_network_reads_are_refused():
    with pytest.raises(RlcliError, match="cannot read observations of Text"):
        flat(gymnasium.spaces.Text(3))
    with pytest.raises(RlcliError, match="cannot read observations of Text"):
        flat(gymnasium.spaces.Dict({"said": gymnasium.spaces.Text(3)}))


MANY = gymnasium.spaces.Dict(
    {
        "way": gymnasium.spaces.MultiDiscrete([3, 4]),
        "seen": gymnasium.spaces.Tuple([BOX, CHOICE, gymnasium.spaces.MultiBinary(2)]),
    }
)


def test_members_of_a_dict_or_a_tuple_are_read_as_gymnasium_flattens_them():
    MANY.seed(1)
    drawn = [MANY.sample() for _ in range(6)]
    batch = jax.tree.map(lambda *each: jnp.stack(each), *drawn)
    expected = [gymnasium.spaces.flatten(MANY, each) for each in drawn]
    np.testing.assert_array_equal(flat(MANY)(batch), np.array(expected, "f4"))


def test_a_network_reads_a_dict_with_time_and_batch_in_front():
    network = own("f", mlp(layers=[4]), action_values(3), MANY)
    obs = jax.tree.map(
        lambda leaf: jnp.zeros((5, 2, *leaf.shape), leaf.dtype), zeros(MANY)
    )
    outputs = applied(network, network.init(jax.random.key(0)), obs)
    assert outputs.shape == (5, 2, 3)


def test_ones_own_forward_pass_is_a_network():
    def forward(obs):
        return hk.Linear(3, w_init=jnp.ones)(obs.reshape(len(obs), -1))

    network = forward_pass("q", forward, action_values(3), BOX)
    params = network.init(jax.random.key(0))
    obs = observations(BOX, (4, 2))
    expected = np.repeat(obs.sum((-1, -2))[..., None], 3, -1)
    np.testing.assert_allclose(applied(network, params, obs), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("forward", "given"),
    [
        (lambda obs: hk.Linear(4)(obs.reshape(2, -1)), "(2, 4)"),
        (lambda obs: hk.Linear(3)(obs.reshape(1, -1)), "(1, 3)"),  # no batch axis
        (lambda obs: hk.Linear(3)(obs), "(2, 2, 3)"),
        (lambda obs: {"q": hk.Linear(3)(obs.reshape(2, -1))}, "{'q': (2, 3)}"),
    ],
)
def test_a_forward_pass_that_gives_something_else_is_refused(forward, given):
    network = forward_pass("q", forward, action_values(3), BOX)
    with pytest.raises(RlcliError) as caught:
        network.init(jax.random.key(0))
    assert caught.value.message == (
        f"network function `q` gives {given} where (2, 3) is needed"
    )
    assert caught.value.hint == "observations are (2, 2, 3), a batch of 2"


def test_a_forward_pass_that_gives_nothing_is_refused():
    network = forward_pass("q", lambda obs: None, action_values(3), BOX)
    with pytest.raises(RlcliError, match="gives None where"):
        network.init(jax.random.key(0))
