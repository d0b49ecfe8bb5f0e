"""Progress: its initial value and random streams."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.loop.advance import info_names, initial_progress, inputs_at
from rlcli.loop.progress import (
    AXES,
    EVALUATION,
    INIT,
    LEARN,
    POLICY,
    RESET,
    STEP,
    Progress,
    Setup,
    stream_key,
)
from rlcli.runs import checkpoint
from rlcli.types import Clock, Inputs

DATA = {
    "environment": {"name": "CartPole-v1", "num_envs": 3},
    "network": {"name": "mlp", "layers": [4]},
    "updater": "ppo",
    "train": {"steps": 1_000, "unroll": 4},
}


@pytest.fixture(scope="module")
def setup() -> Setup:
    return build(recipe.load_recipe(DATA))


@pytest.fixture(scope="module")
def begin(setup):
    """The function of a seed that returns its initial progress, compiled."""

    def start(seed):
        state, obs = setup.environment.reset(stream_key(seed, RESET))
        return initial_progress(setup, seed, setup.numbers_array, state, obs)

    return jax.jit(start)


@pytest.fixture(scope="module")
def progress(begin) -> Progress:
    return begin(np.uint32(7))


def test_info_names_are_those_of_the_environment():
    def logged(name):
        environment = build(
            recipe.load_recipe(DATA | {"environment": name})
        ).environment
        state, _ = jax.jit(environment.reset)(jax.random.key(0))
        return info_names(environment, state)

    assert logged("CartPole-v1") == []
    assert logged("bsuite/DeepSea") == ["bad_episodes", "denoised_return"]


def test_every_stream_of_every_seed_has_different_keys():
    streams = (INIT, RESET, STEP, POLICY, LEARN, EVALUATION)
    keys = [
        jax.random.key_data(stream_key(seed, which)).tobytes()
        for seed, which in itertools.product((0, 1, 2**31 - 1), streams)
    ]
    assert len(set(keys)) == len(keys) == 18


def test_noise_depends_on_seed_and_time_only(setup):
    @jax.jit
    def draw(seed, time):
        is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # noqa: E731
        return [
            jax.random.key_data(leaf) if is_key(leaf) else leaf
            for leaf in jax.tree.leaves(setup.draw_step_noise(seed, time))
        ]

    def noise(seed: int, time: int) -> bytes:
        leaves = jax.device_get(draw(np.uint32(seed), np.int32(time)))
        return b"".join(leaf.tobytes() for leaf in leaves)

    assert noise(1, 5) == noise(1, 5)
    assert len({noise(1, 5), noise(1, 6), noise(2, 5), noise(2, 6)}) == 4


def test_initial_progress_has_a_pending_action(setup, progress):
    environment, agent = setup.environment, setup.agent
    _, obs = jax.jit(environment.reset)(stream_key(7, RESET))
    np.testing.assert_array_equal(progress.pending.obs, obs)
    assert progress.pending.first.tolist() == [True] * 3
    assert set(progress.pending.extras) == set(agent.traits.requires) == {"log_prob"}
    assert np.all(progress.pending.extras["log_prob"] < 0)
    assert (int(progress.iteration), int(progress.position)) == (0, 0)
    assert int(progress.statistics.episodes) == 0


def test_the_initial_unroll_is_zero_with_the_shapes_of_its_steps(progress):
    assert progress.unroll.obs.shape == (4, 3, 4)
    assert progress.unroll.action.dtype == progress.pending.action.dtype
    assert progress.unroll.extras["log_prob"].shape == (4, 3)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(progress.unroll))


def test_progress_contains_no_key(progress):
    kinds = {leaf.dtype for leaf in jax.tree.leaves(progress)}
    assert not any(jnp.issubdtype(kind, jax.dtypes.prng_key) for kind in kinds)


def test_the_initial_parameters_depend_on_the_seed(begin, progress):
    same, other = begin(np.uint32(7)), begin(np.uint32(8))
    jax.tree.map(np.testing.assert_array_equal, same, progress)
    ours, theirs = (
        checkpoint.flatten_tree(each.agent.learner) for each in (same, other)
    )
    for function in ("policy", "value"):
        drawn = f"params/{function}/linear/w"
        assert not np.any(ours[drawn] == theirs[drawn])


def test_a_clock_counts_the_steps_of_all_environments_of_a_seed(setup, progress):
    later = progress._replace(iteration=np.int32(10), position=np.int32(2))
    step = setup.current_step(later)
    assert int(step) == 10 * 4 + 2
    clock, _ = inputs_at(setup, later, step, np.bool_(True))
    assert (int(clock.iteration), float(clock.steps)) == (10, 42 * 3)
    assert setup.steps_per_iteration == 4 * 3


def test_iteration_and_position_are_the_same_for_all_seeds():
    unbatched = [name for name, axis in AXES._asdict().items() if axis is None]
    assert unbatched == ["iteration", "position", "numbers", "data"]


def test_a_clock_consists_of_counters_and_begins_at_zero():
    *counters, successes = Clock.zero()
    assert [float(value) for value in counters] == [0, 0, 0, 0, False]
    assert successes == {}
    assert Inputs(Clock.zero()) == (Clock.zero(), {})
