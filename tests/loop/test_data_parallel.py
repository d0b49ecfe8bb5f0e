"""One agent on several devices: the same rows give the same learning."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, PartitionSpec
from tiers import quick_first

from rlcli import recipe
from rlcli.assembly import build
from rlcli.loop import make_loop
from rlcli.loop.progress import Setup
from rlcli.networks.functions import separate_network
from rlcli.networks.heads import return_head
from rlcli.networks.torsos import mlp
from rlcli.preprocessing.moments import Moments
from rlcli.replays.prioritized import prioritized
from rlcli.runs.checkpoint import flatten_tree, restore_tree
from rlcli.types import Clock, Transition
from rlcli.updaters.learner import Losses, Term, learner, masked_mean
from rlcli.xla import data_axis

DEVICES = 2  # those of the test suite
CARTPOLE = {"name": "CartPole-v1", "num_envs": 4}
NETWORK = {"name": "mlp", "layers": [8]}
ONLINE = {
    "environment": CARTPOLE,
    "network": NETWORK,
    "updater": {"name": "ppo", "epochs": 1, "minibatches": 1},
    "normalize": {"observation": True, "reward": True},
    "optimizer": {"name": "adam", "learning_rate": 1e-2},
    "train": {"steps": 4_000, "unroll": 8},
}
WITH_REPLAY = {
    "environment": CARTPOLE,
    "network": NETWORK,
    "updater": "dqn",
    "replay": {"name": "uniform", "capacity": 80, "batch_size": 8},
    "train": {"steps": 2_000, "start": 40},
}


def setup_of(data: dict, devices: int, seeds: int = 1) -> Setup:
    train = {**data["train"], "data_parallel": devices}
    return build(recipe.load_recipe({**data, "train": train}), range(seeds))


def progress_after(data: dict, devices: int, iterations: int, seeds: int = 1) -> dict:
    loop = make_loop(setup_of(data, devices, seeds))
    progress, _ = loop.advance(loop.begin(), iterations)
    return flatten_tree(loop.save(progress))


def on_devices(function, *inputs: PartitionSpec, outputs: PartitionSpec):
    """The function on all devices, which divide its arguments."""
    mesh = Mesh(np.array(jax.devices()[:DEVICES]), (data_axis.AXIS,))
    return jax.jit(
        jax.shard_map(
            function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False
        )
    )


WHOLE, COLUMNS = PartitionSpec(), PartitionSpec(None, data_axis.AXIS)


def assert_close(leaves: dict, expected: dict) -> None:
    assert leaves.keys() == expected.keys()
    for path, leaf in leaves.items():
        np.testing.assert_allclose(leaf, expected[path], 1e-4, 1e-5, err_msg=path)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_an_online_agent_makes_the_same_run_on_two_devices_as_on_one(seeds):
    """With normalization, and environments and actions of the same random numbers."""
    one = progress_after(ONLINE, 1, 4, seeds)
    assert one["statistics/episodes"].min() > 0
    assert_close(progress_after(ONLINE, DEVICES, 4, seeds), one)


@pytest.mark.parametrize("polynomial", quick_first([False, True]))
def test_a_gradient_step_on_two_devices_equals_that_on_one_with_the_same_rows(
    polynomial,
):
    """Also if devices have different numbers of rows, and the gradient is clipped."""
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 8, 5)).astype(np.float32)
    weight = np.abs(random.normal(size=(3, 8))).astype(np.float32)
    weight[:, 5:] = 0
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(0.1))
    init, step = learner(lambda key: {"q": jnp.arange(5.0)}, optimizer)

    def update(state, x, weight):
        def loss(params):
            error = x @ params["q"] - 1.0
            terms = [Term(error**2, is_weighted=True)]
            if polynomial:
                terms.append(Term(error**4, is_weighted=False))
            return Losses(terms, jnp.zeros(error.shape[1:]), {"error": error})

        clock = Clock.zero()._replace(compute_metrics=jnp.bool_(True))
        state, _, metrics = step(state, loss, weight, clock)
        return state, metrics

    state = jax.jit(init)(jax.random.key(0))
    one = jax.jit(update)(state, x, weight)
    parallel = on_devices(update, WHOLE, COLUMNS, COLUMNS, outputs=WHOLE)
    several = parallel(state, x, weight)
    assert one[1]["gradient_norm"] > 1
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6),
        several,
        one,
    )


@pytest.mark.slow
def test_batch_normalization_on_two_devices_equals_that_of_the_whole_batch():
    """Losses, gradients through the statistics, and running statistics."""
    space = gymnasium.spaces.Box(-1.0, 1.0, (5,), np.float32)
    torso = mlp(layers=[4], batch_norm=True)
    network = separate_network("critic", torso, return_head(), space)
    optimizer = optax.sgd(0.1)
    init, step = learner(network.init, optimizer, turns=[("critic",)])

    def update(state, x, weight):
        def loss(params):
            outputs, statistics = network.learn(params, None, x, (), None)
            error = outputs.value[..., 0] - jnp.sum(x, axis=-1)
            terms = [Term(error**2, is_weighted=True)]
            priority = jnp.zeros(error.shape[1:])
            return Losses(terms, priority, {}, statistics=statistics)

        clock = Clock.zero()._replace(compute_metrics=jnp.bool_(True))
        state, _, metrics = step(state, [loss], weight, clock)
        return state, metrics

    x, weight = jax.random.normal(jax.random.key(0), (3, 8, 5)), jnp.ones((3, 8))
    state = init(jax.random.key(1))
    one = jax.jit(update)(state, x, weight)
    parallel = on_devices(update, WHOLE, COLUMNS, COLUMNS, outputs=WHOLE)
    assert_close(flatten_tree(parallel(state, x, weight)), flatten_tree(one))
    moved = one[0].params["critic.statistics"]["batch_norm"]["mean"]
    np.testing.assert_allclose(moved, 0.01 * x.mean(axis=(0, 1)), rtol=1e-4)


def test_a_loss_that_is_not_finite_on_one_device_stops_all_of_them():
    init, step = learner(lambda key: {"q": jnp.zeros(())}, optax.sgd(0.1))

    def update(state, x):
        def loss(params):
            return Losses([Term(x * params["q"], True)], jnp.zeros(x.shape[1:]), {})

        return step(state, loss, jnp.ones(x.shape), Clock.zero())[0]

    x = np.array([[1, 1, 1, np.nan]], np.float32)
    state = on_devices(update, WHOLE, COLUMNS, outputs=WHOLE)(
        jax.jit(init)(jax.random.key(0)), x
    )
    shards = [int(shard.data) for shard in state.failed.addressable_shards]
    assert shards == [0] * DEVICES and state.params["q"] == 0


def test_means_and_moments_are_those_of_the_rows_of_all_devices():
    x = np.arange(12, dtype=np.float32).reshape(2, 6) ** 2
    weight = np.ones((2, 6), np.float32)
    weight[0, 4:] = 0
    mean = on_devices(masked_mean, COLUMNS, COLUMNS, outputs=WHOLE)
    np.testing.assert_allclose(mean(x, weight), np.mean(x[weight > 0]), 1e-6)
    moments = Moments.initial(jnp.float32(0))
    rows = lambda moments, x: Moments.update(moments, x.reshape(-1))  # noqa: E731
    update = on_devices(rows, WHOLE, COLUMNS, outputs=WHOLE)
    moments = update(update(moments, x), x + 1)
    moments, both = jax.device_get(moments), np.concatenate([x, x + 1])
    assert moments.count == both.size
    np.testing.assert_allclose(moments.mean, np.mean(both), 1e-6)
    np.testing.assert_allclose(moments.variance, np.var(both), 1e-5)


def test_importance_weights_compare_the_probabilities_on_all_devices():
    """A device whose priorities have a small sum samples each window more often."""
    replay = prioritized(1, 2, 1, capacity=8, batch_size=4, alpha=1.0, beta=1.0)
    number = np.zeros((2, 1), np.float32)
    flag = number.astype(bool)
    steps = Transition(number, number, number, number, number, flag, flag, {})

    def sample(priorities, noise):
        state = replay.init(steps)
        for count in range(4):
            state = replay.add(state, steps, jnp.int32(count))
        state = replay.reweigh(state, jnp.arange(8), priorities)
        _, weight, index = replay.sample(state, jnp.int32(4), noise)
        return weight[0], index

    masses = np.array([[1, 2, 3, 4, 1, 1, 1, 1], [5, 6, 7, 8, 9, 9, 9, 9]], np.float32)
    noise = np.full(8, 0.5, np.float32)
    shares = PartitionSpec(data_axis.AXIS)
    function = on_devices(sample, shares, shares, outputs=shares)
    weight, index = (
        np.asarray(x).reshape(2, 4) for x in function(masses.ravel(), noise)
    )
    probability = np.take_along_axis(masses, index, 1) / masses.sum(1, keepdims=True)
    np.testing.assert_allclose(weight, probability.min() / probability, 1e-3)


def test_devices_sample_different_windows_of_their_own_environments():
    setup = setup_of(WITH_REPLAY, DEVICES)
    assert setup.environment.num_envs == 2 and setup.steps_per_iteration == 4
    assert setup.all_devices == DEVICES and setup.devices == 1
    keys = on_devices(
        lambda key: jax.random.key_data(data_axis.fold_in_device(key))[None],
        WHOLE,
        outputs=PartitionSpec(data_axis.AXIS),
    )(jax.random.key(0))
    assert len(np.unique(keys, axis=0)) == DEVICES


def test_without_such_devices_the_functions_return_their_arguments():
    tree = {"a": jnp.ones(2)}
    assert data_axis.axis_size() == 1
    assert data_axis.mean_over_devices(tree) is tree
    assert data_axis.sum_over_devices(tree) is tree
    key = jax.random.key(0)
    assert data_axis.fold_in_device(key) is key


@pytest.mark.slow
def test_a_saved_agent_of_two_devices_continues_with_the_same_bits():
    loop = make_loop(setup_of(WITH_REPLAY, DEVICES))
    progress, _ = loop.advance(loop.begin(), 30)
    saved = flatten_tree(loop.save(progress))
    whole = flatten_tree(loop.save(loop.advance(progress, 30)[0]))
    restored, _ = loop.restore(restore_tree(loop.shapes(), saved))
    resumed = flatten_tree(loop.save(loop.advance(restored, 30)[0]))
    assert resumed.keys() == whole.keys()
    for path, leaf in whole.items():
        np.testing.assert_array_equal(resumed[path], leaf, err_msg=path)
