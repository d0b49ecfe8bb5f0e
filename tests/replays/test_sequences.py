"""Replay of sequences, beside the steps and memories that they come from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.errors import RlcliError
from rlcli.replays import sum_tree
from rlcli.replays.sequences import sequences

# (window, unroll, num_envs), options
SIZES = [
    ((1, 1, 2), {"capacity": 40, "length": 4, "burn_in": 2, "overlap": 2}),
    ((3, 8, 2), {"capacity": 64, "length": 5, "burn_in": 3, "overlap": 2}),
]
ETA, ALPHA, BETA, EPSILON = 0.8, 0.9, 0.6, 0.01


def with_carry(steps):
    """The same steps with a memory: the number of the step, twice and negative."""
    number = steps.action.astype("f4")
    carry = {"hidden": np.stack([2 * number, -number], -1), "cell": number}
    return steps._replace(extras={**steps.extras, "carry": carry})


def report_priority(steps):
    """`[T, N]`, as an updater that learns from rows one by one would."""
    return jnp.abs(steps.reward)


def masses(state):
    return sum_tree.leaf_weights(state.masses.tree)


@pytest.mark.parametrize("preferred", [False, True])
@pytest.mark.parametrize(("sizes", "options"), SIZES)
def test_sequences_begin_on_a_grid_with_the_memory_of_their_first_step(
    sizes, options, preferred, stream, run_replay, original
):
    window, unroll, num_envs = sizes
    capacity, length, burn_in, overlap = options.values()
    unrolls = 6 * capacity // (unroll * num_envs)
    steps = with_carry(stream(1, unrolls, unroll, num_envs))
    priorities = {"eta": ETA, "alpha": ALPHA, "beta": BETA, "epsilon": EPSILON}
    chosen = priorities if preferred else None
    replay = sequences(*sizes, batch_size=16, priorities=chosen, **options)
    see = masses if preferred else (lambda state: ())
    drawn, weight, _, leaves, _ = run_replay(replay, steps, see, report_priority)
    span, stride = burn_in + length + window - 1, length - overlap
    rows = capacity // (unroll * num_envs) * unroll
    brute, largest = {}, 1.0
    for count in range(unrolls):
        time = (count + 1) * unroll
        times = range(max(time - rows, 0), time - span + 1)
        standing = [start for start in times if start % stride == 0]
        if not standing:
            assert not preferred or not np.any(weight[count])
            continue
        numbers = drawn.action[count]
        assert numbers.shape == (span, 16)
        assert set((numbers[0] // num_envs).tolist()) <= set(standing)
        assert np.all(np.diff(numbers, axis=0) == num_envs)
        mine = jax.tree.map(lambda x, count=count: x[count], drawn)
        carry = mine.extras.pop("carry")
        assert carry["hidden"].shape == (1, 16, 2)
        np.testing.assert_array_equal(carry["hidden"][0, :, 1], -numbers[0])
        np.testing.assert_array_equal(carry["cell"], numbers[:1])
        truth = original(steps, numbers)
        truth.extras.pop("carry")
        jax.tree.map(np.testing.assert_array_equal, mine, truth)
        assert not np.any(weight[count][:burn_in])  # to refresh the memory alone
        if not preferred:
            assert np.all(weight[count][burn_in:] == 1)
            continue
        starts = [t * num_envs + env for t in standing for env in range(num_envs)]
        brute = {each: brute.get(each, largest) for each in starts}
        mass = {each: priority**ALPHA for each, priority in brute.items()}
        there = leaves[count][leaves[count] > 0]
        np.testing.assert_allclose(np.sort(there), np.sort([*mass.values()]), rtol=1e-5)
        drawn_mass = np.array([mass[each] for each in numbers[0]])
        expected = (drawn_mass.min() / drawn_mass) ** BETA
        for row in weight[count][burn_in:]:
            np.testing.assert_allclose(row, expected, rtol=1e-4)
        # Of the rows that are learnt from: neither burn-in nor what tracers look at.
        learnt = np.abs(mine.reward[burn_in : burn_in + length])
        mixed = ETA * learnt.max(0) + (1 - ETA) * learnt.mean(0) + EPSILON
        brute |= dict(zip(numbers[0].tolist(), mixed.tolist(), strict=True))
        largest = max(largest, mixed.max())


def test_memory_is_stored_where_sequences_begin_and_nowhere_else(stream):
    steps = with_carry(stream(2, 1, 1, 2))
    replay = sequences(1, 1, 2, capacity=800, length=20, overlap=10)
    unroll = jax.tree.map(lambda leaf: leaf[0], steps)
    state = jax.eval_shape(replay.init, unroll)
    # Every tenth of 400 steps, one under way, one spare, and one for the others.
    assert state.carries["hidden"].shape == (400 // 10 + 3, 2, 2)
    unpack = jax.vmap(state.steps.packing.unpack)
    assert "carry" not in jax.eval_shape(unpack, state.steps.packed).extras


def test_a_network_without_memory_has_none_to_be_stored(stream, run_replay):
    steps = stream(3, 8, 1, 1)
    replay = sequences(1, 1, 1, capacity=8, length=4, batch_size=3)
    drawn, *_ = run_replay(replay, steps)
    assert set(drawn.extras) == {"log_prob"}


def test_a_lone_number_reported_of_a_sequence_is_its_priority(stream, run_replay):
    steps = stream(4, 9, 1, 1)
    replay = sequences(
        *(1, 1, 1),
        capacity=6,
        length=3,
        batch_size=2,
        priorities={"alpha": 1.0, "epsilon": 0.0},
    )
    *_, after = run_replay(replay, steps, masses, lambda steps: jnp.full(2, 7.0))
    assert 7.0 in after[-1]
    assert set(after[-1].tolist()) == {0.0, 7.0}


def test_it_needs_as_many_steps_as_make_a_sequence_sure():
    replay = sequences(3, 1, 1, capacity=64, length=8, burn_in=4, overlap=2)
    assert replay.window == (4 + 8 + 2) + (6 - 1)
    with pytest.raises(RlcliError, match="holds 18 steps of each environment") as error:
        sequences(3, 1, 1, capacity=18, length=8, burn_in=4, overlap=2)
    assert error.value.hint.endswith("at least 19")


def test_sequences_that_never_move_on_are_refused():
    with pytest.raises(RlcliError, match="cannot overlap 4 of 4 steps"):
        sequences(1, 1, 1, length=4, overlap=4)
