"""Memories, against those of Haiku; carries, resets and shared parameters."""

import gymnasium
import haiku as hk
import jax
import numpy as np
import pytest
from random_trees import normal_like
from tiers import quick_first

from rlcli.errors import RlcliError
from rlcli.networks.functions import separate_network, shared_network
from rlcli.networks.heads import action_values_head
from rlcli.networks.memory import apply_to_next, gru, is_recurrent, lstm
from rlcli.networks.torsos import mlp

STEPS, BATCH, SIZE = 7, 3, 5
BOX = gymnasium.spaces.Box(-1, 1, (2,))
CHOICE = gymnasium.spaces.Discrete(4)
KEY = jax.random.key(0)
MEMORIES = {"gru": gru(size=SIZE), "lstm": lstm(size=SIZE)}


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("f4")


def random_params(init, *inputs):
    """Random parameters; to compile the initial ones takes longer than a test."""
    return normal_like(jax.eval_shape(init, KEY, *inputs), scale=0.5)


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_equals_that_of_haiku(name):
    features, nothing = normal(STEPS, BATCH, 4), np.zeros((STEPS, BATCH), bool)
    ours = hk.transform(MEMORIES[name].unroll)
    start = MEMORIES[name].initial(BATCH)
    params = random_params(ours.init, features, start, nothing)
    actual, carries = jax.jit(ours.apply)(params, None, features, start, nothing)
    recurrent = [
        leaf
        for module in params.values()
        for key, leaf in module.items()
        if "recur" in key
    ]
    weights = np.concatenate(recurrent, axis=-1)
    (inputs,) = (each for module, each in params.items() if "inputs" in module)
    cores = {"gru": hk.GRU, "lstm": hk.LSTM}
    theirs = hk.transform(lambda x, h: cores[name](SIZE)(x, h))
    begin = hk.LSTMState(*start) if name == "lstm" else start
    if name == "gru":
        params = {"gru": {"w_i": inputs["w"], "w_h": weights, "b": inputs["b"]}}
    else:  # Haiku's gates are in the order i, g, f, o
        order = np.concatenate([np.arange(SIZE) + SIZE * k for k in (0, 3, 1, 2)])
        both = np.concatenate([inputs["w"], weights])[:, order]
        params = {"lstm/linear": {"w": both, "b": inputs["b"][order]}}
    state, step_theirs = begin, jax.jit(theirs.apply)
    for step, row in enumerate(np.asarray(actual)):
        expected, state = step_theirs(params, None, features[step], state)
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-6)
    last = jax.tree.leaves(jax.tree.map(lambda leaf: leaf[-1], jax.device_get(carries)))
    for one, other in zip(last, jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def network(name="gru", make=separate_network, space=BOX):
    head = action_values_head(3)
    return make("f", mlp(layers=[6]), head, space, core=MEMORIES[name])


def inputs(space=BOX):
    obs = (
        normal(STEPS, BATCH, 2)
        if space is BOX
        else np.tile(np.arange(BATCH), (STEPS, 1))
    )
    first = np.random.default_rng(1).random((STEPS, BATCH)) < 0.3
    return obs, first


@pytest.mark.parametrize("space", quick_first([BOX, CHOICE]), ids=["box", "choice"])
@pytest.mark.parametrize("make", [separate_network, shared_network])
@pytest.mark.parametrize("name", MEMORIES)
def test_an_unroll_equals_single_steps(name, make, space):
    ours, (obs, first) = network(name, make, space), inputs(space)
    params, apply = random_params(ours.init), jax.jit(ours.apply)
    begin = jax.tree.map(lambda leaf: np.asarray(leaf) + 0.5, ours.initial(BATCH))
    actual, carries = jax.device_get(apply(params, None, obs, begin, first))
    assert actual.shape == (STEPS, BATCH, 3)
    carry = begin
    for step in range(STEPS):
        one, carry = jax.device_get(
            apply(params, None, obs[step][None], carry, first[step][None])
        )
        carry = jax.tree.map(lambda leaf: leaf[0], carry)
        np.testing.assert_allclose(one[0], actual[step], rtol=1e-5, atol=1e-6)
        for mine, other in zip(
            *(jax.tree.leaves(each) for each in (carry, carries)), strict=True
        ):
            np.testing.assert_allclose(mine, other[step], rtol=1e-5, atol=1e-6)


def test_the_carry_is_reset_only_at_the_first_step_of_an_episode():
    ours, (obs, _) = network(), inputs()
    params, first = random_params(ours.init), np.zeros((STEPS, BATCH), bool)
    first[3, 1] = True

    @jax.jit
    def outputs(obs):
        return ours.apply(params, None, obs, ours.initial(BATCH), first)[0]

    other = obs.copy()
    other[:3] += 1
    differs = np.any(np.asarray(outputs(obs)) != outputs(other), axis=-1)
    assert np.all(differs[:, [0, 2]]) and np.all(differs[:3, 1])
    assert not np.any(differs[3:, 1])


@pytest.mark.parametrize("name", MEMORIES)
def test_next_observations_use_the_carry_before_them(name):
    ours, (obs, _) = network(name), inputs()
    params, first = random_params(ours.init), np.zeros((STEPS, BATCH), bool)

    @jax.jit
    def outputs(obs):
        actual, carries = ours.apply(params, None, obs, ours.initial(BATCH), first)
        before = jax.tree.map(lambda leaf: leaf[:-1], carries)
        return apply_to_next(ours, params, obs[1:], before), actual[1:]

    np.testing.assert_allclose(*outputs(obs), rtol=1e-5, atol=1e-6)


def test_a_feed_forward_network_treats_next_observations_like_observations():
    ours = separate_network("f", mlp(layers=[6]), action_values_head(3), BOX)
    params = random_params(ours.init)

    @jax.jit
    def outputs(obs):
        expected = ours.apply(params, None, obs, (), None)[0]
        return apply_to_next(ours, params, obs, ()), expected

    np.testing.assert_allclose(*outputs(inputs()[0]), rtol=1e-5)
    assert not is_recurrent(ours)
    assert is_recurrent(network())


def test_a_shared_memory_has_its_parameters_in_the_shared_group():
    ours = network(make=shared_network)
    params = jax.eval_shape(ours.init, KEY)
    assert set(params) == {"shared", "f"}
    inner = {key for module in params["shared"].values() for key in module}
    assert {"gru_recurrent_0", "gru_recurrent_1", "gru_recurrent_2"} <= inner
    assert list(params["f"]) == ["linear"]


def test_an_updater_without_support_for_memories_is_an_error():
    ours, (obs, first) = network(), inputs()
    with pytest.raises(RlcliError, match="does not support memories") as caught:
        jax.eval_shape(ours.apply, jax.eval_shape(ours.init, KEY), None, obs, (), first)
    assert "remove `memory`" in caught.value.hint
