"""The loop: compiled and on the host, in chunks, for several seeds and devices."""

import functools
import itertools
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import equations
from tiers import quick_first

from rlcli import loop, recipe
from rlcli.assembly import build
from rlcli.environments.adapters.host import to_host_environment
from rlcli.loop.progress import RESET, STEP, Setup, stream_key
from rlcli.runs import checkpoint
from rlcli.types import Core, TimeStep
from rlcli.xla import tree_paths

SEED = 5
UNBATCHED = ("iteration", "position")  # fields of Progress without an axis for seeds


def _swing(space: gymnasium.Space, push) -> Core:
    """An environment with many products, sensitive to differences in rounding."""

    def seen(state):
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), 0.37 * state[1]])

    def reset(key):
        state = jax.random.uniform(key, (2,), minval=-3.0, maxval=3.0)
        return state, seen(state)

    def step(state, action, noise):
        force = push(action)
        cost = state[0] ** 2 + 0.1 * state[1] ** 2 + 0.001 * force**2
        gain = 15.0 * jnp.sin(state[0]) + 3.0 * force + 0.01 * noise
        speed = state[1] + 0.05 * gain
        state = jnp.stack([state[0] + 0.05 * speed, speed])
        end = jnp.abs(state[0]) > 6.0
        obs, discount = seen(state), 1.0 - end.astype(jnp.float32)
        return state, TimeStep(obs, obs, -0.37 * cost, discount, end, {})

    box = gymnasium.spaces.Box(-10.0, 10.0, (3,), np.float32)
    return Core(reset, step, box, space, lambda state: None, draw=jax.random.normal)


def swing() -> Core:
    """The environment with discrete actions."""
    push = lambda action: 1.3 * (action.astype(jnp.float32) - 0.7)  # noqa: E731
    return _swing(gymnasium.spaces.Discrete(3), push)


def swing_freely() -> Core:
    """The environment with continuous actions."""
    space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    return _swing(space, lambda action: 2.0 * jnp.clip(action[0], -1.0, 1.0))


def environment(factory, num_envs: int) -> dict:
    name = f"{__name__}:{factory.__name__}"
    return {"name": name, "num_envs": num_envs, "time_limit": 30}


NETWORK = {"name": "mlp", "layers": [16]}
WITH_REPLAY = {
    "environment": environment(swing, 1),
    "network": NETWORK,
    "policy": {
        "name": "epsilon_greedy",
        "epsilon": {"from": 1.0, "to": 0.02, "over": 200},
    },
    "replay": {"name": "uniform", "capacity": 64, "batch_size": 8},
    "updater": {"name": "double_q_learning", "target": {"polyak": 0.01}},
    "optimizer": {"name": "adam", "learning_rate": 1e-2},
    "train": {"steps": 2_000, "start": 0},
}
ONLINE = {
    "environment": environment(swing_freely, 2),
    "network": NETWORK,
    "updater": {"name": "ppo", "epochs": 2, "minibatches": 2},
    "optimizer": {"name": "adam", "learning_rate": {"from": 1e-2, "to": 0.0}},
    "train": {"steps": 4_000, "unroll": 4},
}
DATA = {"with_replay": WITH_REPLAY, "online": ONLINE}
CARTPOLE = {"name": "CartPole-v1", "num_envs": 2}


def setup_of(data: dict, seeds: int = 1, devices: int = 1) -> Setup:
    setup = build(recipe.load_recipe(data), range(SEED, SEED + seeds))
    return setup._replace(devices=devices)


@functools.cache
def _compiled_loop(kind: str, seeds: int, devices: int) -> loop.Loop:
    return loop.make_loop(setup_of(DATA[kind], seeds, devices))


def compiled_loop(kind: str, seeds: int = 1, devices: int = 1) -> loop.Loop:
    """The compiled loop, cached for all tests."""
    return _compiled_loop(kind, seeds, devices)


def leaves_after(kind: str, iterations: int, seeds: int, devices: int = 1) -> dict:
    run = compiled_loop(kind, seeds, devices)
    return checkpoint.flatten_tree(run.save(run.advance(run.begin(), iterations)[0]))


def hosted_loop(setup: Setup) -> loop.Loop:
    """The same environments with the interface of host environments."""
    host = to_host_environment(
        setup.environment,
        len(setup.seeds),
        key=lambda seed: stream_key(seed, RESET),
    )
    hosted = setup._replace(
        environment=host, at=lambda given: (host, setup.at(given)[1])
    )
    return loop.make_loop(hosted)


def assert_equal(actual: dict, expected: dict) -> None:
    assert set(actual) == set(expected)
    unequal = [
        name
        for name, leaf in expected.items()
        if actual[name].tobytes() != leaf.tobytes()
    ]
    assert unequal == []


def last_rows(log, count: int):
    """The rows of a log that are used."""
    return jax.tree.map(lambda leaf: leaf[:, :count], jax.device_get(log))


def assert_close(actual: dict, expected: dict) -> None:
    """Equal but for rounding: of a sum, to the size of the largest number of a leaf."""
    assert set(actual) == set(expected)
    for name, leaf in expected.items():
        ours = actual[name]
        assert (ours.shape, ours.dtype) == (leaf.shape, leaf.dtype), name
        if leaf.dtype.kind == "f":
            atol = 1e-5 + 1e-4 * np.max(np.abs(leaf), initial=0)
            np.testing.assert_allclose(ours, leaf, 1e-4, atol, err_msg=name)
        else:
            np.testing.assert_array_equal(ours, leaf, err_msg=name)


def assert_host_equals_compiled(
    setup: Setup, ours: loop.Loop, chunks: tuple[int, ...]
) -> None:
    """Both loops compute the same numbers, up to rounding.

    How XLA rounds a product and a sum depends on the processor, and on the program
    around them: the bits of two programs agree on some processors only. Use few
    iterations, because `_swing` amplifies the differences.
    """
    host_run = hosted_loop(setup)
    compiled_progress, host_progress = ours.begin(), host_run.begin()
    is_single_seed = len(setup.seeds) == 1
    for count in chunks:
        points = sorted({(count + 1) // 2, count})  # several log points
        compiled_progress, log = ours.advance(compiled_progress, points)
        host_progress, host_log = host_run.advance(host_progress, points)
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
            *(last_rows(each, len(points)) for each in (host_log, log)),
        )
        actual = jax.device_get(host_run.save(host_progress))
        if is_single_seed:  # the hosted environment has no axis for a single seed
            states = jax.tree.map(lambda leaf: leaf[None], actual.environment)
            actual = actual._replace(environment=states)
        assert_close(
            checkpoint.flatten_tree(actual),
            checkpoint.flatten_tree(ours.save(compiled_progress)),
        )


def test_host_and_compiled_loop_agree():
    setup, ours = setup_of(WITH_REPLAY), compiled_loop("with_replay")
    assert_host_equals_compiled(setup, ours, (1, 12))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("kind", ["with_replay", "online"])
def test_host_and_compiled_loop_agree_after_several_chunks(kind, seeds):
    setup = setup_of(DATA[kind], seeds)
    assert_host_equals_compiled(setup, compiled_loop(kind, seeds), (1, 30, 30))


SMALL = {"network": "linear", "updater": "a2c"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "seeds"),
    [
        pytest.param({**ONLINE, **SMALL}, 1, id="small"),
        pytest.param(ONLINE, 3, id="online"),
        pytest.param(WITH_REPLAY, 1, id="with_replay"),
        pytest.param(WITH_REPLAY, 3, id="with_replay-3"),
    ],
)
def test_host_and_compiled_loop_agree_with_normalization(data, seeds):
    scale = {"normalize": {"observation": True, "reward": True}}
    setup = setup_of({**data, **scale}, seeds)
    assert_host_equals_compiled(setup, loop.make_loop(setup), (1, 60))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {
            "environment": CARTPOLE,
            "network": {"name": "mlp", "layers": [16, 16]},
            "tracer": {"name": "n_step", "n": 3},
            "optimizer": {"name": "adam", "learning_rate": 1e-2, "clip_norm": 1},
            "train": {"steps": 2_000, "start": 40},
        },
        {"train": {"steps": 2_000, "start": 0, "unroll": 4, "updates": 2}},
        {"updater": {"name": "q_learning", "target": {"every": 20}, "loss": "mse"}},
        {
            "environment": "FrozenLakeNonSlippery-v0",
            "network": "table",
            "optimizer": {"name": "sgd", "learning_rate": 0.1},
        },
    ],
    ids=["cartpole", "unrolls", "q_learning", "table"],
)
def test_host_and_compiled_loop_agree_with_other_replay_options(changes, seeds):
    setup = setup_of({**WITH_REPLAY, **changes}, seeds)
    assert_host_equals_compiled(setup, loop.make_loop(setup), (130,))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {"environment": CARTPOLE},
        {"environment": {"name": "probe-continuous-action", "num_envs": 2}},
        {"train": {"steps": 4_000, "unroll": 4, "reset": True}},
    ],
    ids=["cartpole", "probe", "resets"],
)
def test_host_and_compiled_loop_agree_with_other_online_options(changes, seeds):
    setup = setup_of({**ONLINE, **changes}, seeds)
    assert_host_equals_compiled(setup, loop.make_loop(setup), (1, 60))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize(
    "data",
    [
        {
            **WITH_REPLAY,
            "environment": environment(swing, 8),
            "train": {"steps": 9_000, "start": 40},
        },
        {**ONLINE, "environment": environment(swing_freely, 8)},
    ],
    ids=["with_replay", "online"],
)
def test_host_and_compiled_loop_agree_for_eight_environments(data, seeds):
    setup = setup_of(data, seeds)
    assert_host_equals_compiled(setup, loop.make_loop(setup), (1, 60))


def replay_addresses(progress) -> list[int]:
    """The addresses of the arrays of a replay."""
    leaves = jax.tree.leaves(progress.agent.replay)
    return [leaf.unsafe_buffer_pointer() for leaf in leaves]


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.slow
def test_the_host_loop_does_not_copy_the_replay(seeds):
    replay = {"name": "uniform", "capacity": 1_000, "batch_size": 8}
    data = {**WITH_REPLAY, "network": "linear", "replay": replay}
    run = hosted_loop(setup_of(data, seeds))
    progress = run.begin()
    before = replay_addresses(progress)
    for counts in (2, [1, 2, 4]):
        progress, _ = run.advance(progress, counts)
        assert replay_addresses(progress) == before
    # In a step: the ring has two more rows than its capacity.
    assert re.findall(r"\[(?:\d+,)?1002,\d+\]\S* copy\(.*", run.hlo()) == []


@pytest.mark.slow
def test_the_host_loop_restores_the_same_arrays_again_after_a_chunk():
    run = hosted_loop(setup_of({**WITH_REPLAY, "network": "linear"}, seeds=3))
    progress, _ = run.advance(run.begin(), 2)
    saved = jax.device_get(run.save(progress))
    first, second = (
        checkpoint.flatten_tree(run.save(run.advance(run.restore(saved)[0], 3)[0]))
        for _ in range(2)
    )
    assert_equal(first, second)


@pytest.mark.slow
def test_the_host_loop_advances_hundreds_of_environments_of_a_single_seed():
    # Their actions are a large array, which is not packed.
    run = hosted_loop(
        setup_of({**ONLINE, **SMALL, "environment": environment(swing_freely, 300)})
    )
    progress = run.begin()
    for _ in range(2):
        progress, _ = run.advance(progress, 1)
    assert progress.pending.action.shape == (1, 300, 1)
    assert int(progress.iteration) == 2


# Quick tests compile without optimization, so bits are compared again in slow tests.
KINDS = pytest.mark.parametrize(
    "kind",
    [
        "with_replay",
        pytest.param("with_replay", id="with_replay-optimized", marks=pytest.mark.slow),
        pytest.param("online", marks=pytest.mark.slow),
    ],
)


@KINDS
def test_the_size_of_chunks_does_not_change_the_bits(kind):
    run = compiled_loop(kind)
    counts = (1, 7, 128, 4)  # also across blocks of noise
    progress, log = run.advance(run.begin(), [*itertools.accumulate(counts)])
    log, again = jax.device_get(log), run.begin()
    for index, count in enumerate(counts):
        again, row = run.advance(again, count)
        expected = jax.tree.map(lambda leaf, at=index: leaf[:, at], log)
        row = jax.tree.map(lambda leaf: leaf[:, 0], jax.device_get(row))
        assert_equal(checkpoint.flatten_tree(row), checkpoint.flatten_tree(expected))
    assert_equal(checkpoint.flatten_tree(again), checkpoint.flatten_tree(progress))


def test_a_chunk_of_no_iterations_changes_nothing():
    run = compiled_loop("with_replay")
    before = checkpoint.flatten_tree(run.begin())
    assert_equal(checkpoint.flatten_tree(run.advance(run.begin(), 0)[0]), before)


@KINDS
def test_a_restored_loop_continues_with_the_same_bits(kind):
    run = compiled_loop(kind)
    progress, _ = run.advance(run.begin(), 9)
    arrays = checkpoint.restore_tree(
        run.shapes(), checkpoint.flatten_tree(run.save(progress))
    )
    restored, warning = run.restore(arrays)
    assert warning == ""
    expected = checkpoint.flatten_tree(run.advance(progress, 5)[0])
    assert_equal(checkpoint.flatten_tree(run.advance(restored, 5)[0]), expected)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "devices"), [("with_replay", 2), ("online", 1)])
def test_a_restored_loop_has_the_layout_of_a_new_one_and_does_not_recompile(
    kind, devices
):
    run = compiled_loop(kind, seeds=2 * devices - 1, devices=devices)
    progress = run.begin()
    saved = checkpoint.flatten_tree(run.save(progress))
    restored, _ = run.restore(checkpoint.restore_tree(run.shapes(), saved))
    advanced, _ = run.advance(run.begin(), 1)
    layouts = [
        [leaf.sharding for leaf in jax.tree.leaves(each)]
        for each in (progress, restored, advanced)
    ]
    assert layouts[0] == layouts[1] == layouts[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["with_replay", "online"])
def test_vmapped_seeds_equal_single_seed_runs_after_a_hundred_updates(kind):
    iterations = {"with_replay": 100, "online": 25}[kind]  # PPO: 4 updates in each
    together = leaves_after(kind, iterations, seeds=3)
    single = leaves_after(kind, iterations, seeds=1)
    for name, leaf in single.items():
        ours = together[name] if name in UNBATCHED else together[name][:1]
        expected = leaf.astype(np.float64)
        np.testing.assert_allclose(ours, expected, atol=1e-4, rtol=1e-4, err_msg=name)


@pytest.mark.slow
def test_seeds_on_two_devices_give_the_same_bits_as_on_one():
    spread = leaves_after("with_replay", 100, seeds=2, devices=2)
    run = compiled_loop("with_replay")  # a program for any single seed
    for index in range(2):
        setup = setup_of(WITH_REPLAY)._replace(seeds=(SEED + index,))
        single, _ = run.advance(loop.make_loop(setup).begin(), 100)
        actual = {
            name: leaf if name in UNBATCHED else leaf[index : index + 1]
            for name, leaf in spread.items()
        }
        assert_equal(actual, checkpoint.flatten_tree(run.save(single)))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 4])  # 3: the last one is repeated
def test_vmapped_seeds_on_each_of_two_devices_equal_those_on_one(seeds):
    spread = leaves_after("online", 20, seeds=seeds, devices=2)
    together = leaves_after("online", 20, seeds=seeds)
    for name, leaf in together.items():
        expected = leaf.astype(np.float64)
        np.testing.assert_allclose(
            spread[name], expected, atol=1e-4, rtol=1e-4, err_msg=name
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        ONLINE,
        WITH_REPLAY | {"updater": "clipped_double_q_learning"},
    ],
    ids=["seeds", "critics"],
)
def test_seeds_and_critics_are_initialized_one_after_the_other(data):
    """LAPACK can deadlock in a batch: its calls see single matrices."""
    data = data | {"network": {"name": "mlp", "layers": [8], "init": "orthogonal"}}
    run = loop.make_loop(setup_of(data, seeds=3))
    calls = list(equations(jax.make_jaxpr(run.begin)(), "qr", "geqrf"))
    assert calls
    assert all(call.invars[0].aval.ndim == 2 for call in calls)


def test_seeds_are_independent():
    # The first two are on one device.
    leaves = leaves_after("with_replay", 25, seeds=3, devices=2)
    for name in ("pending/obs", "agent/learner/params/q/linear/w"):
        assert not np.any(leaves[name][0] == leaves[name][1])


@pytest.mark.slow
def test_an_unroll_contains_the_timesteps_of_the_environment():
    setup = setup_of(ONLINE)
    env = setup.environment
    run = compiled_loop("online")
    progress = run.begin()
    state, obs = env.reset(stream_key(SEED, RESET))
    first = np.ones(env.num_envs, bool)
    step = jax.jit(env.step)
    for iteration in range(10):
        progress, _ = run.advance(progress, 1)
        rows = jax.tree.map(lambda leaf: np.asarray(leaf[0]), progress.unroll)
        for position in range(setup.unroll):
            row = jax.tree.map(lambda leaf, at=position: leaf[at], rows)
            time = iteration * setup.unroll + position
            noise = env.draw(jax.random.fold_in(stream_key(SEED, STEP), time))
            np.testing.assert_allclose(row.obs, obs, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(row.first, first)
            state, answer = step(state, row.action, noise)
            obs, first = answer.obs, answer.last
            np.testing.assert_array_equal(row.last, answer.last)
            np.testing.assert_array_equal(row.discount, answer.discount)
            np.testing.assert_allclose(row.reward, answer.reward, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(
                row.next_obs, answer.next_obs, rtol=1e-4, atol=1e-5
            )


@pytest.mark.slow
def test_the_stream_of_an_environment_depends_on_seed_and_index_only():
    def walk(num_envs: int, seed: int):
        data = {**WITH_REPLAY, "environment": environment(swing, num_envs)}
        env = setup_of(data).environment
        state, obs = jax.jit(env.reset)(stream_key(seed, RESET))
        draw = jax.jit(
            lambda time: env.draw(jax.random.fold_in(stream_key(seed, STEP), time))
        )
        step = jax.jit(env.step)
        yield obs
        for time in range(70):  # the time limit is 30: over two resets
            state, answer = step(state, jnp.arange(num_envs) % 3, draw(time))
            yield answer.obs

    few, many = np.array([*walk(2, 1)]), np.array([*walk(5, 1)])
    np.testing.assert_array_equal(many[:, :2], few)
    other = np.array([*walk(2, 2)])
    assert not np.any(np.all(other == few, axis=-1))
    assert not np.any(np.all(few[:, 0] == few[:, 1], axis=-1))


@pytest.mark.slow
def test_counters_are_the_numbers_of_steps_and_updates():
    leaves = leaves_after("with_replay", 100, seeds=3)
    assert (leaves["iteration"], leaves["position"]) == (100, 0)
    assert leaves["agent/learner/optimizer/0/count"].tolist() == [100] * 3
    leaves = leaves_after("online", 25, seeds=3)  # 2 epochs of 2 minibatches
    assert leaves["agent/learner/optimizer/0/count"].tolist() == [25 * 2 * 2] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [environment(swing, 1), {"name": "gymnasium/CartPole-v1", "num_envs": 2}],
    ids=["compiled", "host"],
)
def test_every_unroll_starts_with_a_reset_if_the_recipe_sets_it(env):
    train = {"steps": 4_000, "unroll": 4, "reset": True}
    run = loop.make_loop(setup_of({**WITH_REPLAY, "environment": env, "train": train}))
    progress = run.begin()
    for _ in range(3):
        progress, _ = run.advance(progress, 1)
        assert np.all(progress.unroll.first[0, 0])
        assert np.all(progress.unroll.last[0, -1])
        assert not np.any(progress.unroll.last[0, :-1])
        assert np.all(progress.unroll.discount == 1)  # cut off, not terminated
    arrays = jax.device_get(run.save(progress))
    restored, warning = run.restore(arrays)
    assert warning == ""
    progress, restored = (run.advance(each, 2)[0] for each in (progress, restored))
    assert_equal(*(checkpoint.flatten_tree(run.save(p)) for p in (progress, restored)))


def test_tracing_raises_an_error_for_an_inconsistent_program():
    good = setup_of(WITH_REPLAY)

    def build_at(inputs):
        env, agent = good.at(inputs)
        return env, agent._replace(learn=lambda *_: jnp.zeros(3) @ jnp.zeros(4))

    with pytest.raises(TypeError, match="dot_general"):
        loop.make_loop(good._replace(at=build_at)).temporary_bytes()


@pytest.mark.parametrize(
    ("kind", "devices"), quick_first([("with_replay", 2), ("online", 1)])
)
def test_shapes_equal_those_of_the_saved_arrays(kind, devices):
    run = compiled_loop(kind, seeds=3, devices=devices)
    expected = tree_paths.leaves_by_path(run.save(run.begin()))
    actual = tree_paths.leaves_by_path(run.shapes())
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in actual.items()} == {
        name: (leaf.shape, leaf.dtype) for name, leaf in expected.items()
    }
