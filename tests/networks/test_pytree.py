"""Networks of other libraries, as torsos and forward passes."""

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick_first

from rlcli.errors import RlcliError
from rlcli.networks.functions import forward_pass, separate_network
from rlcli.networks.heads import action_values_head
from rlcli.networks.pytree import from_pytree
from rlcli.networks.torsos import Torso, bind_inputs
from rlcli.registry import positional_parameters

SPACE = gymnasium.spaces.Box(-1, 1, (3,))
OBS = np.random.default_rng(0).normal(size=(4, 5, 3)).astype("f4")  # [T, B, ...]


def plain():
    def init(key, x):
        return [jax.random.normal(key, (x.shape[-1], 2)), {"b": jnp.ones(2)}, jnp.tanh]

    def apply(params, x):
        weights, biases, activate = params
        return activate(x @ weights + biases["b"])

    return init, apply


def linen():
    module = pytest.importorskip("flax.linen").Dense(2)
    return module.init, module.apply


def nnx():
    nnx = pytest.importorskip("flax.nnx")
    return lambda key, x: nnx.Linear(3, 2, rngs=nnx.Rngs(key)), lambda m, x: m(x)


def equinox():
    eqx = pytest.importorskip("equinox")
    return (
        lambda key, x: eqx.nn.MLP(3, 2, 8, 1, key=key),
        lambda module, x: jax.vmap(module)(x),
    )


each_library = pytest.mark.parametrize("library", [plain, linen, nnx, equinox])


@each_library
@pytest.mark.parametrize("copies", quick_first([None, 2]))
def test_a_forward_pass_computes_and_trains_what_the_library_does(library, copies):
    init, apply = library()
    head = action_values_head(2)
    network = forward_pass("q", from_pytree(init, apply), head, SPACE, copies)
    params = network.init(jax.random.key(1))

    def outputs(params):
        return network.apply(params, None, OBS, (), None)[0]

    leaves, treedef = jax.tree.flatten(init(jax.random.key(2), OBS[0]))
    own = iter(
        params["q"]["pytree"][f"leaf{i}"] for i in range(len(params["q"]["pytree"]))
    )
    merged = [next(own) if hasattr(leaf, "dtype") else leaf for leaf in leaves]

    def expected(member):
        chosen = [
            leaf[member] if copies and hasattr(leaf, "dtype") else leaf
            for leaf in merged
        ]
        return apply(jax.tree.unflatten(treedef, chosen), OBS.reshape(-1, 3))

    actual = np.asarray(jax.jit(outputs)(params)).reshape(-1, 20, 2)
    for member in range(copies or 1):
        np.testing.assert_allclose(
            actual[member], expected(member), rtol=1e-4, atol=1e-5
        )
    gradient = jax.grad(lambda params: jnp.sum(outputs(params)))(params)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient))


@each_library
def test_a_torso_gets_the_output_layer_of_the_head(library):
    torso = Torso(from_pytree(*library()), lambda size, scale: hk.Linear(size))
    network = separate_network("q", torso, action_values_head(4), SPACE)
    params = jax.eval_shape(network.init, jax.random.key(0))
    assert params["q"]["linear"]["w"].shape == (2, 4)


class Chain:
    """As `Sequential` of Flax Linen: its `apply` and `__call__` take any inputs."""

    def apply(self, params, *inputs, **options):
        return inputs[0] @ params

    def __call__(self, *inputs, **options):
        raise NotImplementedError


@pytest.mark.parametrize("apply", [Chain().apply, lambda w, *inputs: inputs[0] @ w])
def test_a_function_of_any_inputs_is_one_of_observations(apply):
    function = from_pytree(lambda key, *inputs: jnp.ones((3, 2)), apply)
    assert len(positional_parameters(function)) == 1
    torso = bind_inputs(Torso(function, lambda size, scale: hk.Linear(size)))
    network = separate_network("q", torso, action_values_head(4), SPACE)
    params = jax.eval_shape(network.init, jax.random.key(0))
    assert params["q"]["linear"]["w"].shape == (2, 4)


def linen_state():
    module = pytest.importorskip("flax.linen").BatchNorm(use_running_average=True)
    return module.init, module.apply


def nnx_state():
    nnx = pytest.importorskip("flax.nnx")
    return lambda key, x: nnx.BatchNorm(3, rngs=nnx.Rngs(key)), lambda m, x: m(x)


def plain_state():
    return lambda key, x: {"count": jnp.zeros((), jnp.int32)}, lambda params, x: x


@pytest.mark.parametrize("library", [plain_state, linen_state, nnx_state])
def test_a_network_with_state_is_refused(library):
    head = action_values_head(3)
    network = forward_pass("q", from_pytree(*library()), head, SPACE)
    with pytest.raises(RlcliError, match="has state"):
        network.init(jax.random.key(0))
