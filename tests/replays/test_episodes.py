"""Replay of whole episodes, beside a list of those that have ended."""

import jax
import numpy as np
import pytest

from rlcli.errors import RlcliError
from rlcli.replays.episodes import episodes
from rlcli.tracers.monte_carlo import monte_carlo
from rlcli.types import Estimates

NOTHING = Estimates(None, None, None, None)


def ended_episodes(steps):
    """All episodes that end in the stream: (unroll of the end, numbers of steps)."""
    unroll, num_envs = steps.reward.shape[1:]
    last = steps.last.reshape(-1, num_envs)
    under_way = [[] for _ in range(num_envs)]
    for t, env in np.ndindex(*last.shape):
        under_way[env].append(t * num_envs + env)
        if last[t, env]:
            yield t // unroll, under_way[env]
            under_way[env] = []


def reference_returns(flat, numbers, gamma):
    """Returns of the steps of one episode, and what is left to bootstrap."""
    total, left = 0.0, 1.0
    for number in reversed(numbers):
        total = flat.reward[number] + gamma * flat.discount[number] * total
        left = gamma * flat.discount[number] * left
        yield number, total, left


# (window, unroll, num_envs, capacity, length, batch_size)
SIZES = [
    (1, 1, 1, 60, 30, 1),
    (1, 7, 3, 300, 40, 10),
    (3, 4, 2, 40, 6, 8),  # many are longer than that
]


@pytest.mark.parametrize(
    ("window", "unroll", "num_envs", "capacity", "length", "batch_size"), SIZES
)
def test_each_episode_is_handed_out_once_whole_and_in_order(
    window, unroll, num_envs, capacity, length, batch_size, stream, run_replay, original
):
    unrolls, gamma = 300 // unroll, 0.9
    steps = stream(1, unrolls, unroll, num_envs)
    replay = episodes(
        *(window, unroll, num_envs),
        capacity=capacity,
        batch_size=batch_size,
        length=length,
    )
    drawn, weight, *_ = run_replay(replay, steps)
    flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[3:])), steps)
    trace = jax.jit(
        jax.vmap(lambda steps: monte_carlo(gamma=gamma).trace(steps, NOTHING))
    )
    rows = jax.tree.map(np.asarray, trace(drawn))
    expected = list(ended_episodes(steps))
    for count in range(unrolls):
        assert drawn.reward[count].shape == (length + window - 1, batch_size)
        now = [numbers for at, numbers in expected if at == count]
        assert len(now) <= batch_size
        assert not np.any(weight[count][:, len(now) :])
        for column, numbers in enumerate(now):
            kept = numbers[-length:]
            counts = weight[count][:, column] > 0
            assert np.all(counts == (np.arange(len(counts)) < len(kept)))
            assert drawn.action[count][counts, column].tolist() == kept
            last = original(steps, kept[-1])
            for row, (number, total, left) in zip(
                reversed(range(len(kept))),
                reference_returns(flat, kept, gamma),
                strict=True,
            ):
                assert drawn.action[count][row, column] == number
                assert rows.reward[count][row, column] == pytest.approx(total, abs=1e-4)
                assert rows.discount[count][row, column] == pytest.approx(left)
                np.testing.assert_array_equal(
                    rows.next_obs[count][row, column], last.next_obs
                )
    longest = max(len(numbers) for _, numbers in expected)
    assert (longest > length) == (length == 6)


def test_episodes_wait_for_their_turn_and_lose_what_is_overwritten_meanwhile(
    stream, run_replay
):
    unrolls, rows = 60, 12
    steps = stream(2, unrolls, 1, 3, end=0.4)
    replay = episodes(1, 1, 3, capacity=36, batch_size=1, length=10)
    drawn, weight, *_ = run_replay(replay, steps)
    expected = list(ended_episodes(steps))
    assert len(expected) > unrolls  # more than can be handed out
    served = 0
    for count in range(unrolls):
        there = [numbers for at, numbers in expected if at <= count]
        served = max(served, len(there) - 36)
        if served >= len(there):
            assert not np.any(weight[count])
            continue
        oldest = max(count + 1 - rows, 0) * 3
        kept = [each for each in there[served][-10:] if each >= oldest]
        counts = weight[count][:, 0] > 0
        assert drawn.action[count][counts, 0].tolist() == kept
        served += 1


def test_as_many_are_handed_out_at_once_as_there_are_environments(stream):
    replay = episodes(1, 1, 3, capacity=60, length=5)
    unroll = jax.tree.map(lambda leaf: leaf[0], stream(3, 1, 1, 3))

    def sampled():
        return replay.sample(replay.init(unroll), 1, jax.random.key(0))

    _, weight, _ = jax.eval_shape(sampled)
    assert weight.shape == (5, 3)


def test_a_capacity_that_holds_no_episode_is_refused():
    with pytest.raises(RlcliError, match="it needs 13 consecutive steps") as caught:
        episodes(1, 4, 2, capacity=31, length=10)
    assert caught.value.hint.endswith("at least 32")
