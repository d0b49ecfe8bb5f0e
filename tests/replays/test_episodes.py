"""Episode replay against a list of completed episodes."""

import jax
import numpy as np
import pytest
from blank import zero_estimates

from rlcli.errors import RlcliError
from rlcli.replays.episodes import episodes
from rlcli.tracers.multi_step import monte_carlo


def completed_episodes(steps):
    """All completed episodes of the stream: (unroll of the end, numbers of steps)."""
    unroll, num_envs = steps.reward.shape[1:]
    last = steps.last.reshape(-1, num_envs)
    current = [[] for _ in range(num_envs)]
    for t, env in np.ndindex(*last.shape):
        current[env].append(t * num_envs + env)
        if last[t, env]:
            yield t // unroll, current[env]
            current[env] = []


def reference_returns(flat, numbers, gamma):
    """Returns of the steps of one episode, and their remaining discount."""
    total, left = 0.0, 1.0
    for number in reversed(numbers):
        total = flat.reward[number] + gamma * flat.discount[number] * total
        left = gamma * flat.discount[number] * left
        yield number, total, left


# (window, unroll, num_envs, capacity, length, batch_size)
SIZES = [
    (1, 1, 1, 60, 30, 1),
    (1, 7, 3, 300, 40, 10),
    (3, 4, 2, 40, 6, 8),  # many episodes are longer
]


@pytest.mark.parametrize(
    ("window", "unroll", "num_envs", "capacity", "length", "batch_size"), SIZES
)
def test_each_episode_is_returned_once_whole_and_in_order(
    window, unroll, num_envs, capacity, length, batch_size, stream, run_replay, original
):
    unrolls, gamma = 300 // unroll, 0.9
    steps = stream(1, unrolls, unroll, num_envs)
    replay = episodes(
        window,
        unroll,
        num_envs,
        capacity=capacity,
        batch_size=batch_size,
        length=length,
    )
    batch, weight, *_ = run_replay(replay, steps)
    flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[3:])), steps)
    trace = jax.jit(
        jax.vmap(
            lambda steps: monte_carlo(gamma=gamma).trace(steps, zero_estimates(steps))
        )
    )
    rows = jax.tree.map(np.asarray, trace(batch))
    expected = list(completed_episodes(steps))
    for count in range(unrolls):
        assert batch.reward[count].shape == (length + window - 1, batch_size)
        now = [numbers for at, numbers in expected if at == count]
        assert len(now) <= batch_size
        assert not np.any(weight[count][:, len(now) :])
        for column, numbers in enumerate(now):
            tail = numbers[-length:]
            counts = weight[count][:, column] > 0
            assert np.all(counts == (np.arange(len(counts)) < len(tail)))
            assert batch.action[count][counts, column].tolist() == tail
            last = original(steps, tail[-1])
            for row, (number, total, left) in zip(
                reversed(range(len(tail))),
                reference_returns(flat, tail, gamma),
                strict=True,
            ):
                assert batch.action[count][row, column] == number
                assert rows.reward[count][row, column] == pytest.approx(total, abs=1e-4)
                assert rows.discount[count][row, column] == pytest.approx(left)
                np.testing.assert_array_equal(
                    rows.next_obs[count][row, column], last.next_obs
                )
    longest = max(len(numbers) for _, numbers in expected)
    assert (longest > length) == (length == 6)


def test_queued_episodes_lose_steps_that_the_ring_overwrites(stream, run_replay):
    unrolls, rows = 60, 12
    steps = stream(2, unrolls, 1, 3, end=0.4)
    replay = episodes(1, 1, 3, capacity=36, batch_size=1, length=10)
    batch, weight, *_ = run_replay(replay, steps)
    expected = list(completed_episodes(steps))
    assert len(expected) > unrolls  # more than can be sampled
    served = 0
    for count in range(unrolls):
        complete = [numbers for at, numbers in expected if at <= count]
        served = max(served, len(complete) - 36)
        if served >= len(complete):
            assert not np.any(weight[count])
            continue
        oldest = max(count + 1 - rows, 0) * 3
        remaining = [number for number in complete[served][-10:] if number >= oldest]
        counts = weight[count][:, 0] > 0
        assert batch.action[count][counts, 0].tolist() == remaining
        served += 1


def test_the_default_batch_size_is_the_number_of_environments(stream):
    replay = episodes(1, 1, 3, capacity=60, length=5)
    unroll = jax.tree.map(lambda leaf: leaf[0], stream(3, 1, 1, 3))

    def sample():
        return replay.sample(replay.init(unroll), np.int32(1), jax.random.key(0))

    _, weight, _ = jax.eval_shape(sample)
    assert weight.shape == (5, 3)


def test_no_episode_is_longer_than_the_time_limit(stream):
    replay = episodes(1, 4, 2, 8, capacity=32, batch_size=3, length=1_000)
    unroll = jax.tree.map(lambda leaf: leaf[0], stream(3, 1, 4, 2))

    def sample():
        return replay.sample(replay.init(unroll), np.int32(1), jax.random.key(0))

    assert jax.eval_shape(sample)[1].shape == (8, 3)
    with pytest.raises(RlcliError, match="it needs 12 consecutive steps"):
        episodes(1, 4, 2, 9, capacity=16, length=1_000)


def test_a_capacity_too_small_for_an_episode_is_refused():
    with pytest.raises(RlcliError, match="it needs 13 consecutive steps") as caught:
        episodes(1, 4, 2, capacity=31, length=10)
    assert caught.value.hint.endswith("at least 32")
