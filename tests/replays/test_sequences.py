"""Sequence replay against the original steps and recurrent states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.errors import RlcliError
from rlcli.replays import priorities
from rlcli.replays.sequences import sequences

# (window, unroll, num_envs), options
SIZES = [
    ((1, 1, 2), {"capacity": 40, "length": 4, "burn_in": 2, "overlap": 2}),
    ((3, 8, 2), {"capacity": 64, "length": 5, "burn_in": 3, "overlap": 2}),
]
ETA, ALPHA, BETA, EPSILON = 0.8, 0.9, 0.6, 0.01


def with_carry(steps):
    """The same steps with a carry computed from the step number."""
    number = steps.action.astype("f4")
    carry = {"hidden": np.stack([2 * number, -number], -1), "cell": number}
    return steps._replace(extras={**steps.extras, "carry": carry})


def report_priority(steps):
    """`[T, N]`, as an updater with a priority for each row."""
    return jnp.abs(steps.reward)


def masses(state):
    return priorities.leaf_weights(state.masses.tree)


@pytest.mark.parametrize(
    ("sizes", "options", "is_prioritized"),
    [
        (*SIZES[0], True),
        (*SIZES[1], False),
        pytest.param(*SIZES[0], False, marks=pytest.mark.slow),
        pytest.param(*SIZES[1], True, marks=pytest.mark.slow),
    ],
)
def test_sequences_begin_on_a_grid_with_the_carry_of_their_first_step(
    sizes, options, is_prioritized, stream, run_replay, original
):
    window, unroll, num_envs = sizes
    capacity, length, burn_in, overlap = options.values()
    unrolls = 6 * capacity // (unroll * num_envs)
    steps = with_carry(stream(1, unrolls, unroll, num_envs))
    priorities = {"eta": ETA, "alpha": ALPHA, "beta": BETA, "epsilon": EPSILON}
    priority_options = priorities if is_prioritized else None
    replay = sequences(*sizes, batch_size=16, priorities=priority_options, **options)
    inspect = masses if is_prioritized else (lambda state: ())
    batch, weight, _, leaves, _ = run_replay(replay, steps, inspect, report_priority)
    span, stride = burn_in + length + window - 1, length - overlap
    rows = capacity // (unroll * num_envs) * unroll
    brute, largest = {}, 1.0
    for count in range(unrolls):
        time = (count + 1) * unroll
        times = range(max(time - rows, 0), time - span + 1)
        available = [start for start in times if start % stride == 0]
        if not available:
            assert not is_prioritized or not np.any(weight[count])
            continue
        numbers = batch.action[count]
        assert numbers.shape == (span, 16)
        assert set((numbers[0] // num_envs).tolist()) <= set(available)
        assert np.all(np.diff(numbers, axis=0) == num_envs)
        sequence = jax.tree.map(lambda x, count=count: x[count], batch)
        carry = sequence.extras.pop("carry")
        assert carry["hidden"].shape == (1, 16, 2)
        np.testing.assert_array_equal(carry["hidden"][0, :, 1], -numbers[0])
        np.testing.assert_array_equal(carry["cell"], numbers[:1])
        truth = original(steps, numbers)
        truth.extras.pop("carry")
        jax.tree.map(np.testing.assert_array_equal, sequence, truth)
        assert not np.any(weight[count][:burn_in])  # burn-in
        if not is_prioritized:
            assert np.all(weight[count][burn_in:] == 1)
            continue
        starts = [t * num_envs + env for t in available for env in range(num_envs)]
        brute = {each: brute.get(each, largest) for each in starts}
        mass = {each: priority**ALPHA for each, priority in brute.items()}
        there = leaves[count][leaves[count] > 0]
        np.testing.assert_allclose(np.sort(there), np.sort([*mass.values()]), rtol=1e-5)
        batch_mass = np.array([mass[each] for each in numbers[0]])
        expected = (batch_mass.min() / batch_mass) ** BETA
        for row in weight[count][burn_in:]:
            np.testing.assert_allclose(row, expected, rtol=1e-4)
        # Over learning rows only: without burn-in and the tracer's extra steps.
        errors = np.abs(sequence.reward[burn_in : burn_in + length])
        mixed = ETA * errors.max(0) + (1 - ETA) * errors.mean(0) + EPSILON
        brute |= dict(zip(numbers[0].tolist(), mixed.tolist(), strict=True))
        largest = max(largest, mixed.max())


def test_carries_are_stored_only_where_sequences_begin(stream):
    steps = with_carry(stream(2, 1, 1, 2))
    replay = sequences(1, 1, 2, capacity=800, length=20, overlap=10)
    unroll = jax.tree.map(lambda leaf: leaf[0], steps)
    state = jax.eval_shape(replay.init, unroll)
    # Every 10th of 400 steps, one incomplete, one spare, and one discarded slot.
    assert state.carries["hidden"].shape == (400 // 10 + 3, 2, 2)
    unpack = jax.vmap(state.steps.packing.unpack)
    assert "carry" not in jax.eval_shape(unpack, state.steps.packed).extras


def test_without_recurrence_no_carry_is_stored(stream, run_replay):
    steps = stream(3, 8, 1, 1)
    replay = sequences(1, 1, 1, capacity=8, length=4, batch_size=3)
    batch, *_ = run_replay(replay, steps)
    assert set(batch.extras) == {"log_prob"}


def test_a_single_number_per_sequence_is_its_priority(stream, run_replay):
    steps = stream(4, 9, 1, 1)
    replay = sequences(
        1,
        1,
        1,
        capacity=6,
        length=3,
        batch_size=2,
        priorities={"alpha": 1.0, "epsilon": 0.0},
    )
    *_, after = run_replay(replay, steps, masses, lambda steps: jnp.full(2, 7.0))
    assert 7.0 in after[-1]
    assert set(after[-1].tolist()) == {0.0, 7.0}


def test_the_window_guarantees_a_complete_sequence():
    replay = sequences(3, 1, 1, capacity=64, length=8, burn_in=4, overlap=2)
    assert replay.traits.window == (4 + 8 + 2) + (6 - 1)
    with pytest.raises(RlcliError, match="holds 18 steps of each environment") as error:
        sequences(3, 1, 1, capacity=18, length=8, burn_in=4, overlap=2)
    assert error.value.hint.endswith("at least 19")


def test_an_overlap_of_the_whole_length_is_refused():
    with pytest.raises(RlcliError, match="cannot overlap 4 of 4 steps"):
        sequences(1, 1, 1, length=4, overlap=4)
