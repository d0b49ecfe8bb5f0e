"""Frame replay against the original stacked observations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.errors import RlcliError
from rlcli.replays.frames import frames
from rlcli.replays.uniform import uniform

SHAPE = (3, 2, 2)  # frame: height, width, channels


def stack_steps(steps, seed, stack, axis, padding):
    """The same steps with stacks of random frames as observations."""
    rng = np.random.default_rng(seed)
    unrolls, unroll, num_envs = steps.reward.shape
    first = steps.first.reshape(-1, num_envs)
    obs, next_obs = [], []
    now = [None] * num_envs
    for t in range(unrolls * unroll):
        for env in range(num_envs):
            frame = rng.integers(1, 256, SHAPE, np.uint8)
            if first[t, env]:
                older = frame if padding == "repeat" else np.zeros_like(frame)
                now[env] = [older] * (stack - 1) + [frame]
            obs.append(np.concatenate(now[env], axis))
            now[env] = [*now[env][1:], rng.integers(1, 256, SHAPE, np.uint8)]
            next_obs.append(np.concatenate(now[env], axis))
    shape = (unrolls, unroll, num_envs, *obs[0].shape)
    return steps._replace(
        obs=np.stack(obs).reshape(shape), next_obs=np.stack(next_obs).reshape(shape)
    )


# (window, unroll, num_envs, capacity, stack, axis, padding)
SIZES = [
    (1, 1, 1, 9, 4, -1, "repeat"),
    (3, 1, 2, 26, 3, 0, "zero"),
    (2, 4, 2, 40, 2, -2, "repeat"),
]


@pytest.mark.parametrize(
    ("window", "unroll", "num_envs", "capacity", "stack", "axis", "padding"), SIZES
)
def test_observations_are_rebuilt_across_ends_of_episodes(
    window,
    unroll,
    num_envs,
    capacity,
    stack,
    axis,
    padding,
    stream,
    run_replay,
    original,
):
    unrolls = 6 * capacity // (unroll * num_envs)
    plain = stream(window, unrolls, unroll, num_envs, end=0.3)
    steps = stack_steps(plain, 1, stack, axis, padding)
    replay = frames(
        window,
        unroll,
        num_envs,
        capacity=capacity,
        batch_size=64,
        stack=stack,
        axis=axis,
        padding=padding,
        ends=capacity,
    )
    batch, weight, *_ = run_replay(replay, steps)
    rows = capacity // (unroll * num_envs) * unroll
    for count in range(unrolls):
        time = (count + 1) * unroll
        if time < replay.traits.window:
            continue
        assert np.all(weight[count] == 1)
        numbers = batch.action[count]
        truth = original(steps, numbers)
        jax.tree.map(
            np.testing.assert_array_equal,
            jax.tree.map(lambda x, count=count: x[count], batch),
            truth,
        )
        assert np.all(np.diff(numbers, axis=0) == num_envs)
        # From the oldest step with a complete stack to the second newest.
        starts = set((numbers[0] // num_envs).tolist())
        oldest = 0 if time <= rows else time - rows + stack - 1
        assert starts <= set(range(oldest, time - window))
        assert time < 2 * rows or len(starts) > 1 or oldest == time - window - 1
    assert batch.last.any()
    assert (batch.last & (batch.discount == 1)).any()


def test_action_masks_are_no_frames(stream, run_replay, original):
    plain = stream(2, 60, 2, 2, end=0.3)
    steps = stack_steps(plain, 1, 4, -1, "repeat")
    rng = np.random.default_rng(2)

    def with_mask(obs):
        mask = rng.integers(0, 2, (*plain.reward.shape, 4), np.int8)
        return {"seen": obs, "action_mask": mask}

    steps = steps._replace(obs=with_mask(steps.obs), next_obs=with_mask(steps.next_obs))
    # Inside of an episode, the next observation is that of the next step.
    flat = {
        name: getattr(steps, name)["action_mask"].reshape(-1, 2, 4)
        for name in ("obs", "next_obs")
    }
    goes_on = ~steps.last.reshape(-1, 2)[:-1]
    flat["next_obs"][:-1][goes_on] = flat["obs"][1:][goes_on]
    replay = frames(2, 2, 2, capacity=40, batch_size=64, ends=40)
    batch, weight, *_ = run_replay(replay, steps)
    assert np.all(weight[-1] == 1) and batch.last[-1].any()
    truth = original(steps, batch.action[-1])
    found = jax.tree.map(lambda leaf: leaf[-1], batch)
    jax.tree.map(np.testing.assert_array_equal, found, truth)


def test_a_window_whose_last_frame_was_overwritten_has_weight_zero(
    stream, run_replay, original
):
    plain = stream(3, 60, 1, 1, end=0.5)
    steps = stack_steps(plain, 2, 2, -1, "repeat")
    replay = frames(1, 1, 1, capacity=30, batch_size=64, stack=2, ends=3)
    batch, weight, *_ = run_replay(replay, steps)
    ends = np.cumsum(plain.last[:, 0, 0])
    for count in range(3, 60):
        numbers = batch.action[count][0]
        is_lost = plain.last[numbers, 0, 0] & (ends[numbers] <= ends[count] - 3)
        np.testing.assert_array_equal(weight[count][0], ~is_lost)
        truth = original(steps, numbers).next_obs
        np.testing.assert_array_equal(
            batch.next_obs[count][0][~is_lost], truth[~is_lost]
        )
    assert 0 < np.mean(weight[3:]) < 1


def test_the_steps_that_are_read_are_those_whose_frames_are_stored(stream, original):
    plain = stream(3, 60, 1, 1, end=0.5)
    steps = stack_steps(plain, 2, 2, -1, "repeat")
    replay = frames(1, 1, 1, capacity=30, batch_size=64, stack=2, ends=3)
    unroll = jax.tree.map(lambda leaf: leaf[0], steps)
    state = replay.init(unroll)
    for count in range(60):
        state = replay.add(
            state,
            jax.tree.map(lambda leaf: leaf[count], steps),  # noqa: B023
            jnp.int32(count),
        )
    ends = np.flatnonzero(plain.last[:, 0, 0])
    stored, rows = replay.contents(state, 60, 1_000)
    # The newest step waits for its next frame; of older episodes the end is lost.
    expected = np.arange(ends[-4] + 1, 59)
    assert stored == len(expected)
    np.testing.assert_array_equal(rows.action, expected)
    np.testing.assert_array_equal(rows.next_obs, original(steps, expected).next_obs)


def test_frames_take_a_fraction_of_the_memory_of_stacked_observations(stream):
    steps = stack_steps(stream(4, 1, 1, 1), 3, 4, -1, "repeat")
    unroll = jax.tree.map(lambda leaf: leaf[0], steps)

    def size(replay):
        leaves = jax.tree.leaves(jax.eval_shape(replay.init, unroll))
        return sum(leaf.size for leaf in leaves if leaf.dtype == jnp.uint8)

    once = size(frames(1, 1, 1, capacity=1_600, stack=4))
    # Last frames take 1/16 more; the ring has a spare row.
    assert once / size(uniform(1, 1, 1, capacity=1_600)) == pytest.approx(
        (1 + 1 / 16) / 8, rel=0.01
    )


@pytest.mark.parametrize(("stack", "axis"), [(3, -1), (4, 0), (4, 5)])
def test_observations_that_do_not_match_the_stack_are_refused(stack, axis, stream):
    steps = stack_steps(stream(5, 1, 1, 1), 3, 4, -1, "repeat")
    replay = frames(1, 1, 1, capacity=16, stack=stack, axis=axis)
    with pytest.raises(RlcliError, match=rf"into {stack} frames along axis {axis}"):
        jax.eval_shape(replay.init, jax.tree.map(lambda leaf: leaf[0], steps))


def test_the_minimum_capacity_includes_frames_before_and_after_a_window():
    with pytest.raises(RlcliError) as caught:
        frames(1, 1, 2, capacity=9, stack=4)
    assert "it needs 5 consecutive steps" in caught.value.message
    assert caught.value.hint.endswith("at least 10")
    assert frames(1, 1, 2, capacity=10, stack=4).traits.window == 5
