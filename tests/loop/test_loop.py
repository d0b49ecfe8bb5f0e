"""The loop: compiled and on the host, in chunks, for several seeds and devices."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import loop, recipe
from rlcli.assembly import build
from rlcli.environments.adapters.host import to_host_environment
from rlcli.loop.progress import RESET, STEP, Setup, stream_key
from rlcli.runs import checkpoint
from rlcli.types import Clock, Environment, TimeStep
from rlcli.xla import tree_paths

SEED = 5
UNBATCHED = ("iteration", "position")  # of Progress: all seeds have the same


def _swing(space: gymnasium.Space, push) -> Environment:
    """Full of products: where two programs round them differently, it shows."""

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
    return Environment(reset, step, box, space, None, draw=jax.random.normal)


def swing() -> Environment:
    """To be pushed to either side, or not at all."""
    push = lambda action: 1.3 * (action.astype(jnp.float32) - 0.7)  # noqa: E731
    return _swing(gymnasium.spaces.Discrete(3), push)


def swing_freely() -> Environment:
    """To be pushed as hard as one likes."""
    space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    return _swing(space, lambda action: 2.0 * jnp.clip(action[0], -1.0, 1.0))


def environment(factory, num_envs: int) -> dict:
    name = f"{__name__}:{factory.__name__}"
    return {"name": name, "num_envs": num_envs, "time_limit": 30}


NETWORK = {"name": "mlp", "layers": [16]}
REMEMBERING = {
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
DATA = {"remembering": REMEMBERING, "online": ONLINE}
CARTPOLE = {"name": "CartPole-v1", "num_envs": 2}


def setup_of(data: dict, seeds: int = 1, devices: int = 1) -> Setup:
    found = build(recipe.load_recipe(data), range(SEED, SEED + seeds))
    return found._replace(devices=devices)


@functools.cache
def _compiled_loop(kind: str, seeds: int, devices: int) -> loop.Loop:
    return loop.make_loop(setup_of(DATA[kind], seeds, devices))


def compiled_loop(kind: str, seeds: int = 1, devices: int = 1) -> loop.Loop:
    """Compiled once, for all tests."""
    return _compiled_loop(kind, seeds, devices)


def leaves_after(kind: str, iterations: int, seeds: int, devices: int = 1) -> dict:
    made = compiled_loop(kind, seeds, devices)
    return checkpoint.flatten_tree(made.advance(made.begin(), iterations)[0])


def hosted_loop(setup: Setup) -> loop.Loop:
    """The same environments, behind the interface of those on the host."""
    seeds = len(setup.seeds)

    @functools.cache
    def host() -> Environment:
        pure, _ = setup.parts(Clock.zero())
        return to_host_environment(
            pure, seeds, key=lambda seed: stream_key(seed, RESET)
        )

    def parts(clock):
        return host(), setup.parts(clock)[1]

    return loop.make_loop(setup._replace(parts=parts))


def assert_equal(found: dict, expected: dict) -> None:
    assert set(found) == set(expected)
    unequal = [
        name
        for name, leaf in expected.items()
        if found[name].tobytes() != leaf.tobytes()
    ]
    assert unequal == []


def assert_host_equals_compiled(
    setup: Setup, ours: loop.Loop, chunks: tuple[int, ...]
) -> None:
    theirs = hosted_loop(setup)
    here, there = ours.begin(), theirs.begin()
    lone = len(setup.seeds) == 1
    for count in chunks:
        here, metrics = ours.advance(here, count)
        there, said = theirs.advance(there, count)
        # Reported numbers are no part of progress: each program sums in its own order.
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-6), said, metrics
        )
        found = theirs.save(there)
        if lone:  # the hosted environment has no axis for a seed of its own
            states = jax.tree.map(lambda leaf: leaf[None], found.environment)
            found = found._replace(environment=states)
        assert_equal(checkpoint.flatten_tree(found), checkpoint.flatten_tree(here))


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        ("remembering", 1),
        ("online", 1),
        pytest.param("remembering", 3, marks=pytest.mark.slow),
        pytest.param("online", 3, marks=pytest.mark.slow),
    ],
)
def test_host_and_compiled_loop_give_the_same_bits(kind, seeds):
    setup = setup_of(DATA[kind], seeds)
    assert_host_equals_compiled(setup, compiled_loop(kind, seeds), (1, 40, 60))


SMALL = {"network": "linear", "updater": "a2c"}


@pytest.mark.parametrize(
    ("data", "seeds"),
    [
        pytest.param({**ONLINE, **SMALL}, 1, id="small"),
        pytest.param(ONLINE, 3, id="online", marks=pytest.mark.slow),
        pytest.param(REMEMBERING, 1, id="remembering", marks=pytest.mark.slow),
        pytest.param(REMEMBERING, 3, id="remembering-3", marks=pytest.mark.slow),
    ],
)
def test_host_and_compiled_loop_give_the_same_bits_with_normalization(data, seeds):
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
        {"environment": environment(swing, 8), "train": {"steps": 9_000, "start": 40}},
        {"train": {"steps": 2_000, "start": 0, "unroll": 4, "updates": 2}},
        {"updater": {"name": "q_learning", "target": {"every": 20}, "loss": "mse"}},
        {
            "environment": "FrozenLakeNonSlippery-v0",
            "network": "table",
            "optimizer": {"name": "sgd", "learning_rate": 0.1},
        },
    ],
    ids=["cartpole", "eight", "unrolls", "q_learning", "table"],
)
def test_host_and_compiled_loop_give_the_same_bits_with_other_replay_options(
    changes, seeds
):
    setup = setup_of({**REMEMBERING, **changes}, seeds)
    assert_host_equals_compiled(setup, loop.make_loop(setup), (130,))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {"environment": CARTPOLE},
        {"environment": environment(swing_freely, 8)},
        {"environment": {"name": "probe-continuous-action", "num_envs": 2}},
        {"train": {"steps": 4_000, "unroll": 4, "reset": True}},
    ],
    ids=["cartpole", "eight", "probe", "resets"],
)
def test_host_and_compiled_loop_give_the_same_bits_with_other_online_options(
    changes, seeds
):
    setup = setup_of({**ONLINE, **changes}, seeds)
    assert_host_equals_compiled(setup, loop.make_loop(setup), (130,))


@pytest.mark.parametrize("kind", ["remembering", "online"])
def test_the_size_of_chunks_does_not_change_the_bits(kind):
    made = compiled_loop(kind)
    progress, metrics = made.advance(made.begin(), 140)
    again = made.begin()
    for count in (1, 7, 128, 4):  # over the border of a block of noise, too
        again, last = made.advance(again, count)
    assert_equal(checkpoint.flatten_tree(again), checkpoint.flatten_tree(progress))
    assert_equal(checkpoint.flatten_tree(last), checkpoint.flatten_tree(metrics))


def test_a_chunk_of_no_iterations_changes_nothing():
    made = compiled_loop("remembering")
    before = checkpoint.flatten_tree(made.begin())
    assert_equal(checkpoint.flatten_tree(made.advance(made.begin(), 0)[0]), before)


def test_a_restored_loop_continues_with_the_same_bits():
    made = compiled_loop("online")
    progress, _ = made.advance(made.begin(), 9)
    arrays = checkpoint.restore_tree(
        made.shapes(), checkpoint.flatten_tree(made.save(progress))
    )
    restored, sentence = made.restore(arrays)
    assert sentence == ""
    expected = checkpoint.flatten_tree(made.advance(progress, 5)[0])
    assert_equal(checkpoint.flatten_tree(made.advance(restored, 5)[0]), expected)


@pytest.mark.parametrize(("kind", "devices"), [("online", 1), ("remembering", 2)])
def test_a_restored_loop_has_the_layout_of_a_new_one_and_does_not_recompile(
    kind, devices
):
    made = compiled_loop(kind, seeds=devices, devices=devices)
    progress = made.begin()
    saved = checkpoint.flatten_tree(made.save(progress))
    restored, _ = made.restore(checkpoint.restore_tree(made.shapes(), saved))
    advanced, _ = made.advance(made.begin(), 1)
    layouts = [
        [leaf.sharding for leaf in jax.tree.leaves(each)]
        for each in (progress, restored, advanced)
    ]
    assert layouts[0] == layouts[1] == layouts[2]


@pytest.mark.parametrize("kind", ["remembering", "online"])
def test_vmapped_seeds_equal_single_seed_runs_after_a_hundred_updates(kind):
    iterations = {"remembering": 100, "online": 25}[kind]  # PPO: 4 updates in each
    together = leaves_after(kind, iterations, seeds=3)
    alone = leaves_after(kind, iterations, seeds=1)
    for name, leaf in alone.items():
        ours = together[name] if name in UNBATCHED else together[name][:1]
        expected = leaf.astype(np.float64)
        np.testing.assert_allclose(ours, expected, atol=1e-4, rtol=1e-4, err_msg=name)


def test_seeds_on_two_devices_give_the_same_bits_as_on_one():
    spread = leaves_after("remembering", 100, seeds=2, devices=2)
    made = compiled_loop("remembering")  # a program for any lone seed
    for index in range(2):
        setup = setup_of(REMEMBERING)._replace(seeds=(SEED + index,))
        alone, _ = made.advance(loop.make_loop(setup).begin(), 100)
        found = {
            name: leaf if name in UNBATCHED else leaf[index : index + 1]
            for name, leaf in spread.items()
        }
        assert_equal(found, checkpoint.flatten_tree(alone))


def test_seeds_are_independent():
    leaves = leaves_after("online", 25, seeds=3)
    for name in ("unroll/obs", "unroll/action", "agent/learner/params/value/linear/w"):
        assert not np.any(leaves[name][0] == leaves[name][1])


def test_an_unroll_contains_the_timesteps_of_the_environment():
    setup = setup_of(ONLINE)
    env, _ = setup.parts(Clock.zero())
    made = compiled_loop("online")
    progress = made.begin()
    state, obs = env.reset(stream_key(SEED, RESET))
    first = np.ones(env.num_envs, bool)
    step = jax.jit(env.step)
    for iteration in range(10):
        progress, _ = made.advance(progress, 1)
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


def test_the_stream_of_an_environment_depends_on_seed_and_index_only():
    def walk(num_envs: int, seed: int):
        data = {**REMEMBERING, "environment": environment(swing, num_envs)}
        env, _ = setup_of(data).parts(Clock.zero())
        state, obs = env.reset(stream_key(seed, RESET))
        step = jax.jit(env.step)
        yield obs
        for time in range(70):  # the time limit is 30: over two resets
            noise = env.draw(jax.random.fold_in(stream_key(seed, STEP), time))
            state, answer = step(state, jnp.arange(num_envs) % 3, noise)
            yield answer.obs

    few, many = np.array([*walk(2, 1)]), np.array([*walk(5, 1)])
    np.testing.assert_array_equal(many[:, :2], few)
    other = np.array([*walk(2, 2)])
    assert not np.any(np.all(other == few, axis=-1))
    assert not np.any(np.all(few[:, 0] == few[:, 1], axis=-1))


def test_counters_are_the_numbers_of_steps_and_updates():
    leaves = leaves_after("remembering", 100, seeds=3)
    assert (leaves["iteration"], leaves["position"]) == (100, 0)
    assert leaves["agent/learner/optimizer/0/count"].tolist() == [100] * 3
    leaves = leaves_after("online", 25, seeds=3)  # 2 epochs of 2 minibatches
    assert leaves["agent/learner/optimizer/0/count"].tolist() == [25 * 2 * 2] * 3


def test_every_unroll_starts_with_a_reset_if_the_recipe_sets_it():
    train = {"steps": 4_000, "unroll": 4, "reset": True}
    made = loop.make_loop(setup_of({**REMEMBERING, "train": train}))
    progress = made.begin()
    for _ in range(3):
        progress, _ = made.advance(progress, 1)
        assert np.all(progress.unroll.first[0, 0])
        assert np.all(progress.unroll.last[0, -1])
        assert not np.any(progress.unroll.last[0, :-1])
        assert np.all(progress.unroll.discount == 1)  # cut off, not terminated


def test_shapes_raise_an_error_for_an_inconsistent_program():
    good = setup_of(REMEMBERING)

    def parts(clock):
        env, agent = good.parts(clock)
        return env, agent._replace(learn=lambda *_: jnp.zeros(3) @ jnp.zeros(4))

    with pytest.raises(TypeError, match="dot_general"):
        loop.make_loop(good._replace(parts=parts)).shapes()


def test_shapes_equal_those_of_the_saved_arrays():
    made = compiled_loop("online", seeds=3)
    expected = tree_paths.leaves_by_path(made.save(made.begin()))
    found = tree_paths.leaves_by_path(made.shapes())
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in found.items()} == {
        name: (leaf.shape, leaf.dtype) for name, leaf in expected.items()
    }
